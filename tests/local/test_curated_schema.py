"""A schema that the user has edited, on its way into the pipeline."""

from pathlib import Path

import pytest

from components.images.options import TransformConfig
from components.validation.config import ValidationConfig
from pipeline_def.config.config import Config
from pipeline_def.pipeline import create_pipeline
from tests import nodes

SCHEMA = """
feature { name: "image/encoded" type: BYTES }
feature { name: "image/class/text" type: BYTES }
string_domain { name: "image/class/text" value: "blue" value: "green" }
"""


@pytest.mark.slow
def test_the_pipeline_carries_the_content_of_the_schema(tmp_path: Path) -> None:
    target = tmp_path / "schema.pbtxt"

    def properties(text: str | None) -> dict[str, object]:
        target.write_text(text or "")
        config = Config(
            data="images",
            output=str(tmp_path),
            transform=TransformConfig(size=32),
            validation=ValidationConfig(schema=text and str(target)),
        )
        components = {node.id: node for node in create_pipeline(config).components}
        assert sorted(components) == sorted(nodes.NODES)
        return dict(components["SchemaGen"].exec_properties)

    carried = properties(SCHEMA)
    assert properties(f"# Only a comment more.\n{SCHEMA}") == carried
    assert properties(SCHEMA.replace("green", "lime")) != carried
    assert str(target) not in str(carried)
    assert "curated_schema" not in properties(None)
