"""What several tests of this folder use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cutlayer.common.config import DataSource
from cutlayer.common.datasets import load_table
from cutlayer.common.tables import Table


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Table]:
    """Write a CSV file and read it."""

    def write_and_read(content: str | bytes, name: str = "partner.csv", **options: object) -> Table:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_table(DataSource(source="csv", path=str(path), **options))  # type: ignore[arg-type]

    return write_and_read
