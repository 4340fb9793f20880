"""The executor of ImageExampleGen: writes the shards with Beam, and describes the artifact."""

from collections.abc import Sequence
from typing import Any

from tfx import types
from tfx.components.example_gen import utils
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils

from components.contract.configuration import from_json, to_json
from components.contract.properties import CONFIG_PROPERTY, EXAMPLES_KEY_PROPERTY, FOLDER_PROPERTY
from components.contract.tfx_classes import Artifacts
from components.ingest.config import IngestConfig
from components.ingest.lookup import LISTING_PROPERTY, list_source
from components.ingest.source.listing import Listing, check_labels, read_listing
from components.ingest.write.plan_writer import IngestJob
from components.ingest.write.run import WriteShards, ingest_listing


class Executor(base_beam_executor.BaseBeamExecutor):
    """Checks every image once and writes the shards, their index and the rejects."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Ingest the folder `exec_properties["input_base"]`.

        Raises:
            DataError: too many files are rejected, or a class has no usable image to train on.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(output_dict["examples"])
        config = from_json(IngestConfig, exec_properties["config"])
        listing = _find_listing(exec_properties, config)
        splits = ingest_listing(
            listing,
            config,
            examples=examples.uri,
            rejects=artifact_utils.get_single_uri(output_dict["rejects"]),
            write=self._write,
            code=exec_properties.get("code_digest") or "",
        )
        examples.split_names = artifact_utils.encode_split_names(splits)
        examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
        # TFX has one name for all TFRecord files; its readers recognize gzip by the file name.
        examples_utils.set_file_format(examples, "tfrecords_gzip")
        _note_source(examples, listing.root, config, exec_properties)

    def _write(self, numbers: Sequence[int], job: IngestJob) -> None:
        # The second pass only rearranges what the first has written, which needs no other machines.
        beam_args = [] if job.again else self._beam_pipeline_args
        WriteShards(job).run(
            numbers, self._make_beam_pipeline, beam_args, target=job.examples_uri, images=job.unread
        )


def _find_listing(exec_properties: dict[str, Any], config: IngestConfig) -> Listing:
    """Read the listing of the driver; without a driver, list the folder now."""
    if path := exec_properties.get(LISTING_PROPERTY):
        return read_listing(path)
    listing = list_source(exec_properties["input_base"], config)
    check_labels(listing)
    return listing


def _note_source(
    examples: types.Artifact, root: str, config: IngestConfig, exec_properties: dict[str, Any]
) -> None:
    """Record what the driver resolved; on Kubeflow, only the step's output can hold it."""
    examples.set_string_custom_property(FOLDER_PROPERTY, root)
    examples.set_string_custom_property(CONFIG_PROPERTY, to_json(config))
    for name in (utils.FINGERPRINT_PROPERTY_NAME, EXAMPLES_KEY_PROPERTY):
        if exec_properties.get(name):
            examples.set_string_custom_property(name, exec_properties[name])
    for name in (utils.SPAN_PROPERTY_NAME, utils.VERSION_PROPERTY_NAME):
        if exec_properties.get(name) is not None:
            setattr(examples, name, exec_properties[name])
