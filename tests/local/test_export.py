"""`local_runner.py export-data`."""

import dataclasses
import errno
import hashlib
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import local_runner
from components.contract.errors import ConfigurationError, DataError, StorageError, UserError
from components.ingest.source.corrections import Correction, write_corrections
from pipeline_def.local.export import command, folder, images, webdataset
from pipeline_def.local.export.images import Collection, Exported, open_collection
from pipeline_def.local.export.options import parse_options
from pipeline_def.runs.record import Output, Step
from tests.ingest.plain import HEADER, Ingested, ingest
from tests.local.run_samples import write_run
from tests.local.test_corrected_copy import contents
from tests.pictures import write_folder

FORMATS = ("folder", "webdataset", "parquet", "tfds")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """Ingested images with a corrected label, a further column and one name twice."""
    place = tmp_path_factory.mktemp("exported")
    source = write_folder(place / "images", each=16)
    rows = [
        {"path": str(path.relative_to(source)), "label": path.parent.name, "age": number / 2}
        for number, path in enumerate(sorted(source.rglob("*.*")))
    ]
    manifest = place / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    wrong = source / "red" / "001.jpeg"
    digest = hashlib.sha256(wrong.read_bytes()).hexdigest()
    corrections = place / "corrections.csv"
    row = Correction(digest, "red/001.jpeg", "relabel", "red", "blue", "me", "", "")
    write_corrections(str(corrections), [row])
    config = dataclasses.replace(HEADER, manifest=str(manifest), corrections=str(corrections))
    return ingest(source, place / "out", config)


@pytest.fixture(scope="module")
def output(made: Ingested, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("output")
    step = Step("done", outputs={"examples": Output(str(made.examples), "Examples", {})})
    write_run(output, 1, steps={"ImageExampleGen": step})
    return output


def export(output: Path, target: Path, kind: str) -> None:
    arguments = ["--output", str(output), "--to", kind, str(target)]
    assert local_runner.main(["export-data", *arguments]) == 0


def found(collection: Collection) -> dict[str, list[tuple[str, bytes]]]:
    return {
        split: sorted((image.label, image.encoded) for image in collection.read(split))
        for split in collection.counts
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_exported_is_ingested_again_as_it_was(
    kind: str, made: Ingested, output: Path, tmp_path: Path, capsys: Any
) -> None:
    target = tmp_path / "data"
    export(output, target, kind)
    assert f"Written      {target}" in capsys.readouterr().out
    again = ingest(target, tmp_path / "again")
    before, after = (open_collection(str(one.examples)) for one in (made, again))
    assert found(after) == found(before)
    assert after.labels == before.labels
    assert again.rejected() == []
    assert sum(label == "blue" for of in found(after).values() for label, _ in of) == 17
    export(output, tmp_path / "twice", kind)
    assert contents(tmp_path / "twice") == contents(target)


def test_columns_are_exported(made: Ingested, output: Path, tmp_path: Path) -> None:
    wanted = {
        image.path: image.columns["age"]
        for split in made.counts
        for image in open_collection(str(made.examples)).read(split)
    }
    assert len(set(wanted.values())) == 48
    for kind in ("webdataset", "parquet", "folder"):
        export(output, tmp_path / kind, kind)
    with tarfile.open(tmp_path / "webdataset" / "train-000000.tar") as archive:
        member = archive.extractfile("000000000.json")
        assert member
        facts = json.load(member)
        assert archive.getnames()[1:3] == ["000000000.cls", "000000000.json"]
    assert facts["columns"] == {"age": wanted[facts["path"]]}
    table = pq.read_table(tmp_path / "parquet" / "train-00000-of-00001.parquet")
    for row in table.to_pylist():
        assert row["age"] == wanted[row["image"]["path"]]
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["label"] == {"names": ["blue", "green", "red"], "_type": "ClassLabel"}
    assert features["age"] == {"dtype": "float32", "_type": "Value"}
    lines = (tmp_path / "folder" / "manifest.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert sorted(row["age"] for row in rows) == sorted(wanted.values())
    assert all((tmp_path / "folder" / row["path"]).is_file() for row in rows)


def test_large_splits_have_several_shards(
    made: Ingested, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = open_collection(str(made.examples))
    monkeypatch.setattr(images, "_SHARD_BYTES", 10_000)
    list(webdataset.write(collection, str(tmp_path)))
    names = sorted(path.name for path in tmp_path.glob("train-*.tar"))
    assert len(names) > 2
    keys: list[str] = []
    for name in names:
        with tarfile.open(tmp_path / name) as archive:
            keys += archive.getnames()[::3]
    assert [int(key[:9]) for key in keys] == list(range(made.counts["train"]))


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [
        ("a/b/1.JPG", "jpeg", "1.JPG"),
        ("a/1.heic", "png", "1.png"),
        ("a/what?.png", "png", "what-.png"),
        ("a/con.png", "png", "con-.png"),
        ("a/.png", "png", "image.png"),
        ("shard.tar#7", "jpeg", "shard.tar-7.jpg"),
        (f"a/{'ü' * 200}.png", "png", f"{'ü' * 75}.png"),
    ],
)
def test_names_suit_every_file_system(path: str, kind: str, name: str) -> None:
    used = set[bytes]()
    image = Exported(b"", kind, "a", path, "0123456789abcdef", {})
    assert folder._choose_name(image, used) == name
    stem, extension = os.path.splitext(name)
    upper = image._replace(path=path.upper() if path.isascii() else path)
    second = folder._choose_name(upper, used)
    assert second.lower() == f"{stem}-0123456789ab{extension}".lower()
    assert len({name.lower(), second.lower(), folder._choose_name(image, used).lower()}) == 3


@pytest.mark.parametrize("labels", [("a/b", "c"), ("Cat", "cat"), (".x", "y"), ("a:", "b")])
def test_labels_that_cannot_be_folders_get_a_sentence(
    labels: tuple[str, ...], tmp_path: Path
) -> None:
    collection = Collection("", {"train": 1}, labels, {})
    with pytest.raises(DataError, match="use --to webdataset, parquet or tfds"):
        list(folder.write(collection, str(tmp_path)))


def test_a_target_appears_whole_or_not_at_all(
    made: Ingested, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    options = parse_options([str(tmp_path / "full"), "--to", "folder", "--output", str(output)])
    with pytest.raises(ConfigurationError, match="name a new or an empty folder"):
        command.export(options)

    def fill(*_: object) -> Any:
        yield from open_collection(str(made.examples)).read("eval")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(command._WRITERS, "folder", fill)
    with pytest.raises(StorageError, match=r"^Cannot write .*new: .*No space left"):
        command.export(dataclasses.replace(options, target=str(tmp_path / "new")))
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_a_damaged_shard_is_named(made: Ingested, tmp_path: Path) -> None:
    copy = tmp_path / "examples"
    for path, data in contents(made.examples).items():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes(data[:-5] if path.startswith("Split-train") else data)
    with pytest.raises(StorageError, match=r"Split-train.* is damaged"):
        list(open_collection(str(copy)).read("train"))


@pytest.mark.parametrize(
    "arguments", [[], ["d"], ["--to", "folder"], ["d", "--to", "zip"], ["d", "--t", "folder"]]
)
def test_mistakes_get_a_sentence(arguments: list[str]) -> None:
    with pytest.raises(UserError):
        parse_options(arguments)


def test_the_folder_may_come_last() -> None:
    given = [["d", "--to", "tfds"], ["--to", "tfds", "d"], ["--to=tfds", "d"]]
    assert {parse_options(arguments).target for arguments in given} == {os.path.abspath("d")}
