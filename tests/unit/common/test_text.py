"""The text source: which words become columns, what is in them, and what a person is told."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cutlayer.common.config import DataSource
from cutlayer.common.datasets import load_table
from cutlayer.common.errors import DataError, PluginError
from cutlayer.common.tables import Table

REVIEWS = 'A bad, bad "film"\t0\nA good film; good cast\t1\n\t0\nThe end of it\t1\n'


def load(folder: Path, content: str = REVIEWS, **options: object) -> Table:
    file = folder / "reviews.tsv"
    file.write_text(content)
    more = {"path": str(file), "text": "c0", "label": "c1", "header": False, "quoting": False} | options
    return load_table(DataSource(source="text", **more))  # type: ignore[arg-type]


def columns_of(table: Table) -> dict[str, list[float]]:
    return {name: table.columns[name].to_pylist() for name in table.columns.column_names}


def test_the_most_frequent_words_and_of_equals_the_first_in_the_alphabet(tmp_path: Path) -> None:
    table = load(tmp_path, size=4)
    assert columns_of(table) == {"bad": [1, 0, 0, 0], "cast": [0, 1, 0, 0], "film": [1, 1, 0, 0], "good": [0, 1, 0, 0]}
    assert table.ids == ("0", "1", "2", "3")
    assert table.label is not None
    assert table.label.to_pylist() == ["0", "1", "0", "1"]
    assert "reviews.tsv: 1 of 4 texts are missing, and have no words" in table.notes


def test_parties_take_shares_of_one_vocabulary(tmp_path: Path) -> None:
    whole = load(tmp_path)
    parts = [load(tmp_path, part=f"{i}/3", label=None) for i in (1, 2, 3)]
    assert [name for part in parts for name in part.columns.column_names] == whole.columns.column_names
    assert all(part.label is None and part.columns.num_columns >= 2 for part in parts)
    assert any("fewer than size: 500" in note for note in whole.notes)


def test_tf_idf_and_hashed_have_rows_of_length_1(tmp_path: Path) -> None:
    for options in ({"encoding": "tf_idf"}, {"encoding": "hashed", "size": 64}):
        table = load(tmp_path, **options)
        lengths = [sum(values[row] ** 2 for values in columns_of(table).values()) for row in range(4)]
        assert lengths == pytest.approx([1, 1, 0, 1])
        assert columns_of(load(tmp_path, **options)) == columns_of(table)
    weights = columns_of(load(tmp_path, encoding="tf_idf"))
    assert weights["bad"][0] > weights["film"][0] > 0  # twice in it, and in no other text
    assert len(columns_of(load(tmp_path, encoding="hashed", size=64))) == 64


def test_a_parquet_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["x", "y"], "said": ["no words", "more words"]}), tmp_path / "said.parquet")
    source = DataSource(source="text", path=str(tmp_path / "said.parquet"), text="said")  # type: ignore[call-arg]
    table = load_table(source)
    assert table.ids == ("x", "y")
    assert columns_of(table) == {"more": [0, 1], "no": [1, 0], "words": [1, 1]}


@pytest.mark.parametrize(
    ("options", "content", "message"),
    [
        ({"text": "review"}, REVIEWS, "there is no column 'review'; there are 'c0', 'c1'"),
        ({}, "!\t0\n?\t1\n", "no text in column 'c0' has a word"),
        ({"part": "4/3"}, REVIEWS, "part: '4/3': expected i/n"),
        ({"text": "c1"}, REVIEWS, "column 'c1' is under"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, options: dict[str, object], content: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        load(tmp_path, content, **options)
    assert message in str(error.value)
    assert "good" not in str(error.value)


def test_options_are_checked(tmp_path: Path) -> None:
    for options in ({"size": 0}, {"encoding": "word2vec"}):
        with pytest.raises(PluginError):
            load(tmp_path, **options)
