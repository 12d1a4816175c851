"""The `Janitor` port on Iceberg."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import LakeError
from carbon_pipeline.lake.iceberg.catalog import Catalogs, lake_errors
from carbon_pipeline.lake.iceberg.commit import load
from carbon_pipeline.lake.port import Janitor


class IcebergJanitor(Janitor):
    """Removes files below a dataset's own location, and no others."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    def unreferenced(self, dataset: Dataset, paths: Sequence[str]) -> Sequence[str]:
        """See `Janitor.unreferenced`."""
        with lake_errors(f"looking at the files of {dataset.coordinate}"):
            referenced = set(_referenced(self._table(dataset)))
        return [path for path in paths if path not in referenced]

    def remove(self, dataset: Dataset, paths: Sequence[str]) -> None:
        """See `Janitor.remove`. `LakeError` for a path outside the dataset's place."""
        for path in paths:
            if not path.startswith(f"{dataset.location}/") or "/../" in path:
                raise LakeError(f"{path} is outside the place of {dataset.coordinate}, and is left alone")
        with lake_errors(f"removing files of {dataset.coordinate}"):
            io = self._table(dataset).io
            for path in paths:
                with suppress(FileNotFoundError):
                    io.delete(path)

    def _table(self, dataset: Dataset) -> Table:
        try:
            return load(self._catalogs.open(dataset.catalog), dataset.identifier)
        except NoSuchTableError:
            raise LakeError(
                f"the table of {dataset.coordinate} is gone from its catalog, so nothing says what its files belong to",
                remedy=f"If it was dropped on purpose, remove {dataset.location} by hand.",
            ) from None


def _referenced(table: Table) -> Iterator[str]:
    """Every file that any snapshot of the table refers to."""
    manifests: set[str] = set()
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in manifests:
                continue
            manifests.add(manifest.manifest_path)
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                yield entry.data_file.file_path
