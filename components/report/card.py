"""The model card: what someone who finds the model should know before they use it, in Markdown.

After Mitchell et al. 2019, "Model Cards for Model Reporting", with the front matter that Hugging
Face reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from components.report.card_evaluation import describe_evaluation, format_duration
from components.report.facts import ReportFacts
from components.report.markdown import bullets, dump_yaml, escape, fence, table

MOST_CLASSES = 50
"""More are summed up, not listed."""

# Below this an accuracy of a class says little: its interval is ± 0.2 and more.
_FEW_EXAMPLES = 20

_OWNER = "**To be completed by the owner of the model**"

_SERVING = """import tensorflow as tf

model = tf.saved_model.load(FOLDER_OF_THIS_CARD)
image = open("image.jpg", "rb").read()
answer = model.signatures["serving_default"](image_bytes=tf.constant([image]))
print(answer["label"], answer["probabilities"])"""


def write_card(facts: ReportFacts) -> str:
    """Return the card; the same facts give the same text, and any label leaves it well-formed."""
    sections = {
        "Model details": _details(facts),
        "Intended use": _intended_use(facts),
        "Training data": _training_data(facts),
        **describe_evaluation(facts, most_classes=MOST_CLASSES),
        "Limits": bullets(_limits(facts)),
        "Configuration": fence(dump_yaml(_plain(facts.header.config)), "yaml"),
        "How to serve": _serving(),
    }
    text = "\n\n".join(
        [
            f"---\n{dump_yaml(_front_matter(facts))}---",
            f"# Model card: {escape(facts.header.pipeline)}",
            *(f"## {title}\n\n{body}" for title, body in sections.items()),
        ]
    )
    # Names of files may be any bytes.
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def _front_matter(facts: ReportFacts) -> dict[str, Any]:
    scalars = facts.comparison.measures.scalars
    known = [(name, value) for name, value in scalars.items() if math.isfinite(value)]
    result = {
        "task": {"type": "image-classification"},
        "dataset": {
            "type": "image-folder",
            "name": facts.header.data,
            "split": facts.split,
            "revision": facts.header.fingerprint,
        },
        "metrics": [{"type": name, "value": round(float(value), 6)} for name, value in known],
    }
    return {
        "library_name": "tf-keras",
        "pipeline_tag": "image-classification",
        "tags": ["tensorflow", "tfx", "saved-model"],
        "model-index": [{"name": facts.header.pipeline, "results": [result]}],
    }


def _plain(value: Any) -> Any:
    """Turn mappings and sequences of any kind into those that YAML knows."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | None) else str(value)


def _details(facts: ReportFacts) -> str:
    header = facts.header
    model, transform = (header.config.get(name, {}) for name in ("model", "transform"))
    classes = len(facts.comparison.measures.labels)
    size = transform.get("size")
    lines = [
        f"Task: image classification, {classes:,} classes",
        f"Architecture: {escape(str(model.get('name', 'not known')))}, pretrained weights: "
        f"{escape(str(model.get('weights', 'not known')))}",
        f"Input: images of any size, brought to {size} x {size} pixels" if size else "",
        f"Trained: {_trained(facts)}",
        f"Pipeline: {escape(header.pipeline)}, code {escape(header.code) or 'not known'}",
    ]
    versions = table(
        ("package", "version"),
        [(escape(name), escape(version)) for name, version in header.versions.items()],
        texts=2,
    )
    return f"{bullets(line for line in lines if line)}\n\n{versions}"


def _trained(facts: ReportFacts) -> str:
    when = facts.header.started
    took = facts.header.training_seconds
    epochs = max((len(values) for values in facts.history.values()), default=0)
    parts = [
        escape(when) if when else "at a time not known",
        f"in {format_duration(took)}" if took is not None else "",
        f"epochs: {epochs:,}" if epochs else "",
    ]
    return ", ".join(part for part in parts if part)


def _intended_use(facts: ReportFacts) -> str:
    return (
        "What the model is meant for is not known to the pipeline that made it.\n\n"
        f"> {_OWNER}\n>\n"
        "> - Intended uses and users:\n"
        "> - Uses that it is not for:\n"
        "> - People whom its mistakes affect:\n"
        "> - Licence of the model and of its images:\n\n"
        "The model answers every image with one of its "
        f"{len(facts.comparison.measures.labels):,} labels, also one that shows none of them."
    )


def _training_data(facts: ReportFacts) -> str:
    header = facts.header
    lines = [f"Folder: {escape(header.data)}"]
    if header.fingerprint:
        lines.append(f"Fingerprint: {escape(header.fingerprint)}")
    if header.span is not None:
        version = "" if header.version is None else f", version {header.version}"
        lines.append(f"Span: {header.span}{version}")
    for name, words in (("rejected", "Files rejected"), ("duplicates", "Extra copies of files")):
        if facts.files.get(name):
            lines.append(f"{words}: {facts.files[name]:,}")
    return f"{bullets(lines)}\n\n{_balance(facts)}"


def _balance(facts: ReportFacts) -> str:
    """Count the images of each split and class, or of the extremes where there are many."""
    splits = list(facts.balance)
    labels = sorted({label for counts in facts.balance.values() for label in counts})
    totals = ["all classes", *(f"{sum(facts.balance[split].values()):,}" for split in splits)]
    if len(labels) <= MOST_CLASSES:
        rows = [_counts(facts, escape(label), label) for label in labels]
    else:
        sizes = {label: facts.balance.get("train", {}).get(label, 0) for label in labels}
        extremes = {"most": max(labels, key=sizes.__getitem__)}
        extremes["fewest"] = min(labels, key=sizes.__getitem__)
        rows = [
            _counts(facts, f"{escape(label)} ({which} to train on)", label)
            for which, label in extremes.items()
        ]
    return table(("class", *map(escape, splits)), [*rows, totals])


def _counts(facts: ReportFacts, name: str, label: str) -> list[str]:
    return [name, *(f"{counts.get(label, 0):,}" for counts in facts.balance.values())]


def _limits(facts: ReportFacts) -> Iterator[str]:
    yield (
        "The served graph does not read EXIF: it takes a photograph as its pixels are stored, "
        "while training images were turned upright. Clients should turn camera files upright."
    )
    if conflicts := facts.files.get("label_conflicts"):
        yield f"Images found under more than one label: {conflicts:,}; some labels are wrong."
    if leaks := facts.files.get("in_several_splits"):
        yield f"Images in more than one split: {leaks:,}; the numbers above flatter the model."
    measures = facts.comparison.measures
    few = [
        (label, count)
        for label, count in zip(measures.labels, measures.support.tolist(), strict=True)
        if count < _FEW_EXAMPLES
    ]
    if few:
        fewest, count = min(few, key=lambda found: found[1])
        yield (
            f"Classes with fewer than {_FEW_EXAMPLES} images to evaluate on: {len(few):,}, such as "
            f"{escape(fewest)} with {count}; their numbers are uncertain."
        )
    for split, found in facts.anomalies.items():
        for text in found:
            yield f"Data validation, {escape(split)}: {escape(text)}"
    yield from map(escape, facts.notes)


def _serving() -> str:
    signatures = table(
        ("signature", "input", "output"),
        [
            (
                "`serving_default`",
                "`image_bytes` string [batch]: JPEG, PNG, GIF or BMP files",
                "`label`, `probabilities`, `labels` (the text of each column)",
            ),
            (
                "`serving_examples`",
                "`examples` string [batch]: serialized `tf.train.Example`s",
                "`probabilities`",
            ),
        ],
        texts=3,
    )
    return (
        f"TensorFlow Serving takes the folder above this card's.\n\n{fence(_SERVING, 'python')}"
        f"\n\n{signatures}"
    )
