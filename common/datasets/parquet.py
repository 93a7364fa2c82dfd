"""Parquet files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from cutlayer.common.datasets.base import datasets
from cutlayer.common.datasets.files import RawTable, TableFile
from cutlayer.common.datasets.roles import tidy
from cutlayer.common.errors import DataError


@datasets.register("parquet")
@dataclass(kw_only=True)
class Parquet(TableFile):
    """A Parquet file. Text columns are read as those of a CSV file; dictionary-encoded ones are categories."""

    def read(self, path: Path) -> RawTable:
        try:
            with ParquetFile(path) as file:
                table = file.read()
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{path} cannot be read as Parquet: {error}") from error
        return RawTable(tuple(map(tidy, table.column_names)), tuple(table.columns), _place)


def _place(index: int) -> str:
    return f"row {index + 1}"
