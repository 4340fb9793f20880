"""TFDV's statistics of columns, and their comparison with a reference; TFDV loads in seconds."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2

from components.validation.anomalies import Reference, explain_drift, raise_thresholds
from components.validation.feature_statistics import Statistics


def validate(
    statistics: Statistics, schema: schema_pb2.Schema, reference: Reference | None
) -> anomalies_pb2.Anomalies:
    """Return TFDV's anomalies, with thresholds above what chance causes and texts that explain."""
    import tensorflow_data_validation as tfdv

    if reference is None:
        return tfdv.validate_statistics(statistics, schema)
    raised = raise_thresholds(schema, statistics, reference)
    side = "previous_statistics" if reference.kind == "drift" else "serving_statistics"
    anomalies = tfdv.validate_statistics(statistics, raised, **{side: reference.statistics})
    explain_drift(anomalies, statistics, reference)
    return anomalies


def summarize(columns: Mapping[str, Any]) -> Statistics:
    """Return TFDV's statistics of columns, feature → values."""
    import tensorflow_data_validation as tfdv
    from tensorflow_data_validation.statistics import stats_impl

    arrays = [pa.array([[value] for value in column]) for column in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, [*columns])
    return stats_impl.generate_statistics_in_memory(batch, tfdv.StatsOptions())
