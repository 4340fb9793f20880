import os
from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import ConfigurationError
from components.ingest.config import IngestConfig
from pipeline_def.config.config import Config
from pipeline_def.local.output.locations import choose_output, find_output, locate, make_absolute
from tests.local.run_samples import write_run


@pytest.mark.parametrize(
    ("place", "path"),
    [
        *((url, url) for url in ("gs://b/x", "minio://b", "memory://i", "gs://b/day-{SPAN}")),
        *(("/x/../y", "/y"), ("file:///x", "/x")),
        *((path, os.path.abspath(path)) for path in ("x", "a:b/c", "x-{SPAN}")),
    ],
)
def test_a_store_stays_as_it_is_and_a_folder_becomes_absolute(place: str, path: str) -> None:
    for schemes in (None,) if "://" in path else (None, ()):
        assert locate(place, "data", schemes) == path


@pytest.mark.parametrize(
    ("option", "place", "message"),
    [
        ("data", "ftp://host/x", "is not supported: use a local folder or a URL with gs://"),
        ("output", "nonsense://x", "is not supported"),
        ("data", "gs:/b/x", "write it as gs://b/x"),
        ("output", "gs://", "write it as gs://bucket/folder"),
        ("data", "s3:b", "write it as s3://b"),
        # The working copy is named after the URL.
        ("output", "gs://b/../../x", "no part of it may be empty, . or .."),
        ("output", "gs://b//x", "no part of it may be empty"),
    ],
)
def test_a_location_that_is_not_supported(option: str, place: str, message: str) -> None:
    places: dict[str, Any] = {"data": "/images", "output": "/out", option: place}
    with pytest.raises(ConfigurationError, match=rf"--{option} is {place}.*{message}"):
        make_absolute(Config(**places))


@pytest.mark.parametrize("url", ["gs://b/x", "gcs://b/x/", "s3://b", "minio://b/x/y"])
def test_an_output_in_a_store(url: str) -> None:
    config = make_absolute(Config(output=url, data="gs://b/images/"))
    assert (config.output, config.data) == (url.rstrip("/"), "gs://b/images")
    with pytest.raises(ConfigurationError, match="lies in --data"):
        make_absolute(Config(data="gs://b/images", output="gs://b/images/out"))


@pytest.mark.parametrize("way", ["data", "output", "file://", "file:// data", ".."])
def test_no_way_leads_to_an_output_among_the_images(tmp_path: Path, way: str) -> None:
    data, link = tmp_path / "images", tmp_path / "link"
    (data / "red").mkdir(parents=True)
    link.symlink_to(data if way == "data" else data / "red")
    named, output = {
        "data": (str(link), f"{data}/out"),
        "output": (str(data), f"{link}/out"),
        "file://": (str(data), f"file://{data}/out"),
        "file:// data": (f"file://{data}", f"{data}/out"),
        "..": (str(data), f"{tmp_path}/other/../images/out"),
    }[way]
    with pytest.raises(ConfigurationError, match="lies in --data"):
        make_absolute(Config(data=named, output=output))
    for beside in ("images-out", "images/../out", "file:out"):
        make_absolute(Config(data=str(data), output=str(tmp_path / beside)))


def test_tables_are_found_from_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ingest = IngestConfig(manifest="labels.csv", corrections="gs://b/c.csv")
    absolute = make_absolute(Config(data="/images", output="/out", ingest=ingest)).ingest
    assert (absolute.manifest, absolute.corrections) == (f"{tmp_path}/labels.csv", "gs://b/c.csv")


@pytest.mark.parametrize(
    ("data", "given", "output"),
    [
        pytest.param(None, (), "output/digits", id="the sample"),
        pytest.param("x/digits", (), "output/digits-images", id="another digits"),
        pytest.param("photos", (), "output/photos", id="a folder"),
        pytest.param("/x/photos/", ("output",), "output", id="named by the user"),
        pytest.param("gs://b/x/span-{SPAN}/v{VERSION}", (), "output/x", id="spans"),
        pytest.param("gs://bucket", (), "output/bucket", id="a bucket"),
        pytest.param("/", (), "output/images", id="the root"),
        pytest.param("output/sample", (), "output/sample-images", id="a name of ours"),
    ],
)
def test_the_output_is_named_after_the_images(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    data: str | None,
    given: tuple[str, ...],
    output: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    place, why = choose_output(Config(data=data, given=list(given)))
    assert (place, bool(why)) == (output, not given)


def test_commands_find_the_only_output_with_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    output = tmp_path / "output"
    assert find_output() == find_output(str(output)) == str(output)
    write_run(output / "birds", 1)
    assert find_output() == find_output(str(output)) == str(output / "birds")
    assert capsys.readouterr().err == 2 * f"Output: {output}/birds\n"
    assert find_output("gs://b/x") == "gs://b/x"
    write_run(output, 1)
    with pytest.raises(ConfigurationError, match="several outputs, output, output/birds: choose"):
        find_output()
    assert find_output(str(output)) == str(output)
