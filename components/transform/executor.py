"""The executor of ImageTransform: the graph, then one output shard per input shard."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform import impl_helper
from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io, schema_utils
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils

from components.contract.artifact_files import list_names, make_folders, on_disk, open_file
from components.contract.errors import DataError
from components.contract.example import ENCODED, FILENAME, LABEL, LABEL_ID, LABEL_VOCABULARY, SHA256
from components.contract.tfx_classes import Artifacts
from components.images.canonical import canonicalize
from components.images.options import read_custom_config
from components.records.shard_files import UNFINISHED, read_index, write_index
from components.transform.shard_writer import TransformShard, take_over


def preprocessing_fn(
    inputs: dict[str, tf.Tensor], custom_config: dict[str, Any]
) -> dict[str, tf.Tensor]:
    """Turn raw features, each [batch, 1], into what trainers and the served model read.

    Args:
        inputs: the features of `components.contract.example`.
        custom_config: of the component, see `read_custom_config`, and the path of the vocabulary of
            the labels.

    Returns:
        `image/encoded` string [batch], canonical; `image/class/label` int64 [batch], in vocabulary
        order; `image/filename` and `image/key/sha256` string [batch], if the examples have them.
    """
    config, ingest = read_custom_config(custom_config)
    canonical = canonicalize(tf.reshape(inputs[ENCODED], [-1]), config, ingest=ingest)
    labels = tf.reshape(inputs[LABEL], [-1])
    label_ids = tft.apply_vocabulary(labels, custom_config[LABEL_VOCABULARY])
    outputs = {ENCODED: canonical, LABEL_ID: label_ids}
    for name in (FILENAME, SHA256):
        if name in inputs:
            outputs[name] = tf.reshape(inputs[name], [-1])
    return outputs


class Executor(base_beam_executor.BaseBeamExecutor):
    """Writes the graph, for which no image needs to be read, then transforms every shard."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Write the transform graph, and the transformed examples with their index.

        Raises:
            DataError: the examples are not those of an ImageExampleGen.
        """
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        try:
            index = read_index(examples.uri)
        except FileNotFoundError as error:
            raise DataError(
                f"{examples.uri} has no index: transform the examples of an ImageExampleGen, which "
                f"also reads TFRecord files of others."
            ) from error
        # How ingest shrinks travels with the shards, also into other pipelines.
        custom = json.loads(exec_properties["custom_config"]) | {"ingest": index.get("ingest", {})}
        transformed = artifact_utils.get_single_instance(
            output_dict[standard_component_specs.TRANSFORMED_EXAMPLES_KEY]
        )
        graph_uri = artifact_utils.get_single_uri(output_dict["transform_graph"])
        known = _write_vocabulary(index, transformed.uri)
        _write_graph(graph_uri, artifact_utils.get_single_uri(input_dict["schema"]), known | custom)
        output = tft.TFTransformOutput(graph_uri)
        labels = output.vocabulary_by_name(LABEL_VOCABULARY)
        places = [(split, name) for split, names in index["splits"].items() for name in names]
        origin: dict[str, Any] = {}
        code = exec_properties.get("code_digest")
        if code and on_disk(examples.uri) and on_disk(transformed.uri):
            decisive = code, custom, labels, sorted(output.transformed_feature_spec())
            origin["made_by"] = hashlib.sha256(repr(decisive).encode()).hexdigest()[:16]
            origin["made_from"] = os.path.relpath(examples.uri, transformed.uri)
            places = take_over(places, examples.uri, transformed.uri, origin["made_by"])
        total = sum(index["splits"][split][name] for split, name in places)
        writer = TransformShard(graph_uri, examples.uri, transformed.uri, total)
        writer.run(
            places,
            self._make_beam_pipeline,
            self._beam_pipeline_args,
            target=transformed.uri,
            images=total,
        )
        facts = {name: index[name] for name in ("labels", "groups", "ingest") if name in index}
        write_index(transformed.uri, index["splits"], **facts, **origin)
        transformed.split_names = examples.split_names
        examples_utils.set_payload_format(transformed, example_gen_pb2.FORMAT_TF_EXAMPLE)
        examples_utils.set_file_format(transformed, examples_utils.get_file_format(examples))


def _write_graph(graph_uri: str, schema_uri: str, custom_config: Mapping[str, Any]) -> None:
    """Write the transform graph, for which no image needs to be read, and its metadata.

    TFX's executor would do the same with Beam: a lookup in a table depends on data, as it sees it.
    """
    [schema_file] = list_names(schema_uri)
    schema = io_utils.parse_pbtxt_file(os.path.join(schema_uri, schema_file), schema_pb2.Schema())
    specs = schema_utils.schema_as_feature_spec(schema).feature_spec
    folder = os.path.join(graph_uri, tft.TFTransformOutput.RAW_METADATA_DIR)
    metadata_io.write_metadata(dataset_metadata.DatasetMetadata(schema), folder)
    impl_helper.analyze_in_place(
        partial(preprocessing_fn, custom_config=dict(custom_config)),
        force_tf_compat_v1=False,
        feature_specs=specs,
        type_specs=impl_helper.get_type_specs_from_feature_specs(specs),
        transform_output_path=graph_uri,
    )


def _write_vocabulary(index: Mapping[str, Any], transformed_uri: str) -> dict[str, str]:
    """Write the vocabulary of the labels, so that TFX reads no images to count them.

    TFX's order, by frequency, would change the numbers of labels, and so all shards, as images are
    added. The file lies where workers on other machines see it; `write_index` removes it.
    """
    labels = sorted(label.encode() for label in index["labels"]["train"])
    path = os.path.join(transformed_uri, UNFINISHED, LABEL_VOCABULARY)
    make_folders(os.path.dirname(path))
    with open_file(path, "wb") as file:
        file.write(b"".join(label + b"\n" for label in labels))
    return {LABEL_VOCABULARY: path}
