"""`local_runner.py schema`, and what it writes given back to a run."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.utils import io_utils

from components.contract.errors import StorageError
from components.contract.example import ENCODED, LABEL
from components.images.options import TransformConfig
from components.validation.config import ValidationConfig
from components.validation.tfdv_files import read_schema
from pipeline_def.config.config import Config
from pipeline_def.local.commands.schema import write_schema
from pipeline_def.pipeline import create_pipeline
from tests import nodes
from tests.pictures import write_folder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def inferred(tmp_path: Path) -> str:
    """A folder as SchemaGen leaves it."""
    schema = schema_pb2.Schema()
    for name in (ENCODED, LABEL):
        schema.feature.add(name=name, type=schema_pb2.BYTES)
    schema.string_domain.add(name=LABEL, value=["blue", "green"])
    folder = tmp_path / "inferred"
    io_utils.write_pbtxt_file(str(folder / "schema.pbtxt"), schema)
    return str(folder)


def test_what_is_written_reads_back_as_it_was_inferred(inferred: str, tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "schema.pbtxt"
    write_schema(inferred, str(target))
    [file] = Path(inferred).iterdir()
    assert read_schema(str(target)) == io_utils.parse_pbtxt_file(str(file), schema_pb2.Schema())
    assert f"--validation.schema '{target}'" in target.read_text()


def test_an_edited_file_is_not_overwritten(inferred: str, tmp_path: Path) -> None:
    target = tmp_path / "schema.pbtxt"
    write_schema(inferred, str(target))
    write_schema(inferred, str(target))
    edited = target.read_text().replace('value: "green"', 'value: "lime"')
    target.write_text(edited)
    with pytest.raises(StorageError, match=r"schema\.pbtxt exists and differs .* --to"):
        write_schema(inferred, str(target))
    assert target.read_text() == edited


@pytest.mark.slow
def test_the_pipeline_carries_the_content_of_the_schema(inferred: str, tmp_path: Path) -> None:
    target = tmp_path / "schema.pbtxt"
    write_schema(inferred, str(target))

    def properties(schema: str | None) -> dict[str, object]:
        config = Config(
            data="images",
            output=str(tmp_path),
            transform=TransformConfig(size=32),
            validation=ValidationConfig(schema=schema),
        )
        components = {node.id: node for node in create_pipeline(config).components}
        assert sorted(components) == sorted(nodes.NODES)
        return dict(components["SchemaGen"].exec_properties)

    carried = properties(str(target))
    target.write_text("# Only a comment more.\n" + target.read_text())
    assert properties(str(target)) == carried
    target.write_text(target.read_text().replace('value: "green"', 'value: "lime"'))
    assert properties(str(target)) != carried
    assert str(target) not in str(carried)
    assert "curated_schema" not in properties(None)


@pytest.mark.slow
def test_the_command_and_a_run_with_what_it_wrote(tmp_path: Path) -> None:
    data, output = write_folder(tmp_path / "images", each=30), tmp_path / "out"

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "local_runner.py"), *argv, "--output", str(output)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    done = run("schema", str(data))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in (output / "artifacts").iterdir() if path.is_dir()) == [
        "ImageExampleGen",
        "SchemaGen",
        "StatisticsGen",
    ]
    written = output / "schema.pbtxt"
    assert str(written) in done.stdout
    schema = read_schema(str(written))
    [height] = [f for f in schema.feature if f.name == "image/height"]
    height.int_domain.min = 100
    written.write_text(text_format.MessageToString(schema, as_utf8=True))
    stopped = run("--data", str(data), "--validation.schema", str(written))
    assert stopped.returncode == 2
    assert "train: image/height: " in stopped.stderr
    assert "ImageExampleGen   unchanged" in stopped.stdout
    assert "Transform" not in stopped.stdout
