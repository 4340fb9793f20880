"""Configuration of ingest."""

import functools
import math
from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Interval

from components.contract.configuration import (
    Count,
    Fraction,
    Number,
    Positive,
    Text,
    configuration,
    require,
)
from components.contract.example import is_split_name
from components.images.options import FileOptions

LayoutOption = Literal["auto", "label", "split"]

_MOST_COLUMNS = 50


@configuration("ingest")
class IngestConfig(FileOptions):
    """How image files become sharded TFRecords."""

    manifest: Text | None = None
    """CSV, JSON Lines or Parquet file with the columns path or file_name, label, and optionally
    split, group and others. It is a path or URL; paths in it are relative to the folder. Unset:
    folder names are the labels, or a metadata.csv as Hugging Face has it."""

    columns: list[Text] | None = None
    """Further columns of the manifest to keep in the examples and to slice the evaluation by, such
    as [camera, age]; they hold numbers or short text."""

    corrections: Text | None = None
    """CSV file, path or URL, with decisions about single images, such as `review` writes. Images
    are found by their content; the columns are sha256, path, action (keep, relabel, remove or
    unsure), from, to, who, when and why. Unset: a local run uses those of its output; none: no
    corrections."""

    features: dict[Text, Text] | None = None
    """Names of the features of shards that hold image, label, split and group, such as `{image:
    img, label: target}`. In WebDataset these are extensions or keys of the JSON. Unset: the names
    that TFDS, Model Garden and Hugging Face use."""

    layout: LayoutOption = "auto"
    """Whether the folders in `data` are labels or splits. auto: splits if all are named like train,
    val or test_set and one is train, labels if nothing suggests splits; otherwise the run stops."""

    exclude: list[Text] = field(default_factory=list)
    """Folders, which are then not read, and files of `data` to leave out, such as [docs, '*.txt'].
    * matches slashes, too; a name with brackets may be written as it is."""

    span: Count | None = None
    """Span to read if the folder is a pattern with {SPAN}, or with {YYYY}, {MM} and {DD}. A date
    counts as days since 1970-01-01. Unset: the newest."""

    window: Positive | Literal["all"] | None = None
    """Number of newest spans to read, or all. Their images have the column span, and paths that
    start with the span's folder. Unset: one span, without both."""

    splits: dict[Text, Number] | None = None
    """Fraction of images per split, such as `{train: 0.8, eval: 0.2}`. A hash of the image's
    content or group decides, unless folder or manifest name a split: train, eval, test or one of
    these. Needs `train` and `eval`; the fractions must add up to 1. Unset: train 0.8, eval 0.1 and
    test 0.1; below 1,000 images, where test would have fewer than 100, train 0.8 and eval 0.2."""

    near_duplicates: Literal["keep", "together"] = "together"
    """What to do with resized, recompressed or brightened copies. together: keep them in one split,
    so that no test image has its twin in train. keep: do not look for them. Given splits stay as
    they are. Needs `check: pixels`."""

    fingerprint: Literal["metadata", "content"] = "metadata"
    """How to notice changed images. metadata: by names, sizes and times, or a store's checksums.
    content: by reading all local files, for folders that are copied, and volumes whose files change
    owner at every mount."""

    # Smaller shards are hardly more than their name; a TFRecord holds up to 2 GiB.
    shard_mib: Annotated[Number, Interval(ge=0.1, le=1_048_576)] = 128.0
    """Size of a shard, MiB. It is large enough to read in one stream and small enough to distribute
    over readers. The number of shards is a power of two, so that most stay the same as data
    grow."""

    min_shards: Annotated[Positive, Interval(le=100_000)] = 8
    """Minimum shards per split, rounded up to a power of two."""

    min_shard_images: Positive = 16
    """Minimum images per shard on average, which overrides `min_shards`."""

    max_reject_fraction: Fraction = 0.01
    """Stop the run if more than this fraction of the files are rejected."""

    @functools.cached_property
    def finds_near_duplicates(self) -> bool:
        """Whether images are compared."""
        return self.near_duplicates != "keep" and self.check == "pixels"

    def __post_init__(self) -> None:
        """Check layout and columns, and names and fractions of the splits."""
        if self.corrections == "none":
            object.__setattr__(self, "corrections", None)
        require(
            self.manifest is None or self.layout == "auto",
            f"ingest.layout is {self.layout!r}, but ingest.manifest names the labels and splits: "
            f"set only one of them.",
        )
        require(
            self.manifest is None or self.window is None,
            f"ingest.window is {self.window!r}, but the paths of ingest.manifest belong to one "
            f"span: set only one of them.",
        )
        require(
            self.manifest is not None or not self.columns,
            f"ingest.columns is {self.columns!r}, but there is no ingest.manifest.",
        )
        require(
            len(self.columns or ()) <= _MOST_COLUMNS,
            f"ingest.columns names {len(self.columns or ())} columns: {_MOST_COLUMNS} are allowed.",
        )
        for field_name in self.features or {}:
            require(
                field_name in ("image", "label", "split", "group"),
                f"ingest.features names a feature for {field_name!r}: only image, label, split and "
                f"group can be taken from one, as in {{image: img, label: target}}.",
            )
        if self.splits is None:
            return
        given = ", ".join(f"{name}: {fraction}" for name, fraction in self.splits.items())
        require(
            {"train", "eval"} <= self.splits.keys(),
            f"ingest.splits is {{{given}}}: it needs at least train and eval, such as "
            f"{{train: 0.8, eval: 0.2}}.",
        )
        for name in self.splits:
            require(
                is_split_name(name),
                f"ingest.splits has a split {name!r}: use letters, digits, - and _ for its name.",
            )
        fractions = self.splits.values()
        require(
            all(fraction > 0 for fraction in fractions) and math.isclose(sum(fractions), 1.0),
            f"ingest.splits is {{{given}}}: each fraction must be above 0, and all must add up "
            f"to 1.",
        )
