"""What a manifest says of a data file: sizes, counts and bounds, from the file's own footer.

PyIceberg's reading of a footer is used but for two things that it gets wrong (0.12):

- it takes the bounds of dates and times by way of Python's types, which end at the year 9999 and then fail the write:
  those bounds are made here, from the integers;
- where a row group has values but no bounds, since Parquet keeps none for long texts, it makes do with those of the
  other row groups, and a reader that trusts them misses rows: such columns get no bounds here.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, TimestampType, TimestamptzType, TimeType

_COUNTS_ONLY: Final = MetricsMode(MetricModeTypes.COUNTS)
_TEMPORAL: Final = (DateType, TimeType, TimestampType, TimestamptzType)


def file_statistics(footer: pq.FileMetaData, schema: Schema) -> dict[str, Any]:
    """The statistics of one file, as `DataFile.from_args` takes them."""
    temporal = {field.field_id: field.field_type for field in schema.fields if isinstance(field.field_type, _TEMPORAL)}
    extremes, unbounded = _extremes(footer, schema)
    plan = {
        field_id: dataclasses.replace(column, mode=_COUNTS_ONLY)
        if field_id in temporal or field_id in unbounded
        else column
        for field_id, column in compute_statistics_plan(schema, {}).items()
    }
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=plan,
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    ).to_serialized_dict()
    for field_id, field_type in temporal.items():
        if extremes[field_id] and field_id not in unbounded:
            statistics["lower_bounds"][field_id] = to_bytes(field_type, min(extremes[field_id]))
            statistics["upper_bounds"][field_id] = to_bytes(field_type, max(extremes[field_id]))
    return statistics


def _extremes(footer: pq.FileMetaData, schema: Schema) -> tuple[dict[int, list[int]], set[int]]:
    """The raw bounds of all row groups by field id, and the fields that have values outside of them."""
    ids = parquet_path_to_id_mapping(schema)
    extremes: dict[int, list[int]] = defaultdict(list)
    unbounded: set[int] = set()
    for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
        for column in (group.column(place) for place in range(group.num_columns)):
            field_id, found = ids[column.path_in_schema], column.statistics
            if found is not None and found.has_min_max:
                if found.physical_type in {"INT32", "INT64"}:
                    extremes[field_id] += (found.min_raw, found.max_raw)
            elif found is None or not found.has_null_count or found.null_count < column.num_values:
                unbounded.add(field_id)
    return extremes, unbounded
