"""Parquet files: what each type of column becomes."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cutlayer.common.config import DataSource
from cutlayer.common.datasets import load_table
from cutlayer.common.errors import DataError
from cutlayer.common.tables import Table

Load = Callable[..., Table]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write columns and read them."""

    def write_and_read(columns: dict[str, object], **options: object) -> Table:
        path = tmp_path / "lab.parquet"
        parquet.write_table(pa.table(columns), path)
        return load_table(DataSource(source="parquet", path=str(path), **options))  # type: ignore[arg-type]

    return write_and_read


def dictionary(values: list[object]) -> pa.Array:
    return pa.array(values).dictionary_encode()


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None, 3], pa.int8()), [1.0, None, 3.0]),
        (pa.array([1.5, np.nan, 3.0], pa.float32()), [1.5, None, 3.0]),
        (pa.array([True, None, False]), [1.0, None, 0.0]),
        (pa.array([Decimal("1.50"), None, Decimal("2.25")]), [1.5, None, 2.25]),
        (pa.array([2**60 + 1, 0, None]), [float(2**60), 0.0, None]),
        (pa.nulls(3), [None, None, None]),
        (pa.array(["1", "n/a", "3e0"]), [1.0, None, 3.0]),
        (pa.array(["a ", None, "?"]), ["a", None, None]),
        (pa.array(["a", None, ""], pa.large_string()), ["a", None, None]),
        (dictionary(["1", "2", None]), ["1", "2", None]),
    ],
    ids=str,
)
def test_features_by_type(load: Load, column: pa.Array, expected: list[object]) -> None:
    table = load({"id": ["a", "b", "c"], "x": column})
    assert table.columns["x"].to_pylist() == expected
    assert table.columns.schema.field("x").type == (pa.string() if str in map(type, expected) else pa.float64())


def test_lists_decide_whatever_the_type(load: Load) -> None:
    days = pa.array([datetime.date(2024, 1, day) for day in (1, 2)])
    columns = {"i": pa.array([7, 8]), "d": dictionary(["1", "2"]), "day": days}
    table = load(columns, categorical=["i", "day"], numeric=["d"])
    assert table.columns.to_pydict() == {"i": ["7", "8"], "d": [1.0, 2.0], "day": ["2024-01-01", "2024-01-02"]}


@pytest.mark.parametrize(
    "column", [pa.array([17, 5]), pa.array(["17", "5"]), dictionary(["17", "5"]), dictionary([17, 5])], ids=str
)
def test_ids_are_written_plainly(load: Load, column: pa.Array) -> None:
    assert load({"id": column, "x": [1.0, 2.0]}).ids == ("17", "5")


@pytest.mark.parametrize("column", [pa.array([17.0, 5.0]), pa.array([True, False])], ids=str)
def test_ids_of_other_types_are_refused(load: Load, column: pa.Array) -> None:
    with pytest.raises(DataError, match=r"the id column 'id' is stored as \w+; store ids as text or whole numbers"):
        load({"id": column, "x": [1.0, 2.0]})


def test_an_id_that_is_null_is_missing(load: Load) -> None:
    with pytest.raises(DataError, match="1 row has no id"):
        load({"id": pa.array(["a", None])})


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None]), ["1", None]),
        (pa.array([1.0, np.nan]), ["1", None]),
        (pa.array([True, False]), ["true", "false"]),
        (dictionary(["Yes", "No"]), ["Yes", "No"]),
    ],
    ids=str,
)
def test_labels_by_type(load: Load, column: pa.Array, expected: list[str | None]) -> None:
    label = load({"x": [1.0, 2.0], "y": column}, label="y").label
    assert label is not None
    assert label.to_pylist() == expected


@pytest.mark.parametrize(
    "column",
    [
        pa.array([datetime.datetime(2024, 1, 1)] * 2),
        pa.array([[1], [2]]),
        pa.array([{"a": 1}] * 2),
        pa.array([b"x"] * 2),
    ],
    ids=str,
)
def test_columns_that_are_neither_numbers_nor_text_are_refused(load: Load, column: pa.Array) -> None:
    with pytest.raises(DataError, match=r"column 'when' is of type .*, which is neither.*`drop: \[when\]`"):
        load({"x": [1.0, 2.0], "when": column})
    assert load({"x": [1.0, 2.0], "when": column}, drop=["when"]).columns.column_names == ["x"]


def test_nested_columns_are_no_categories(load: Load) -> None:
    with pytest.raises(DataError, match="column 'when' of type .* holds no text"):
        load({"x": [1.0], "when": pa.array([{"a": 1}])}, categorical=["when"])


def test_infinite_numbers_are_named_by_row(load: Load) -> None:
    with pytest.raises(DataError, match=r"lab\.parquet, row 2: column 'x' has 1 number that is infinite"):
        load({"x": [1.0, np.inf]})


def test_the_index_that_pandas_leaves_is_left_out(load: Load) -> None:
    assert load({"x": [1.0], "__index_level_0__": [0]}).columns.column_names == ["x"]


def test_no_rows(load: Load) -> None:
    with pytest.raises(DataError, match=r"^lab\.parquet has no rows$"):
        load({"id": pa.array([], pa.string())})


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "lab.parquet").write_text("id,a\n")
    with pytest.raises(DataError, match=r"lab\.parquet cannot be read as Parquet"):
        load_table(DataSource(source="parquet", path=str(tmp_path / "lab.parquet")))  # type: ignore[call-arg]
