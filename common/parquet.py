"""Parquet files that are whole or absent."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cutlayer.common.files import write_atomically


def write_table(path: Path, table: pa.Table) -> None:
    """Write `table` to `path`: after a crash there is the old file or the new one."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    write_atomically(path, sink.getvalue().to_pybytes())
