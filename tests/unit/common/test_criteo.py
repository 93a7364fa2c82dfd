"""Criteo's own format: which columns a party gets, and what a person is told where a line does not fit."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cutlayer.common.config import DataSource
from cutlayer.common.datasets import criteo, load_table
from cutlayer.common.datasets.click_log import COLUMNS
from cutlayer.common.errors import DataError, PluginError
from cutlayer.common.tables import Table


def line(row: int) -> list[str]:
    """A line of the file: label, 13 numbers of which one is missing, 26 categories of which one is."""
    numbers = [str(row * 100 + i) for i in range(12)] + [""]
    categories = [f"{(row % 2 + 1) * 2654435761 * (i + 1) % 2**32:08x}" for i in range(25)] + [""]
    return [str(row % 3 % 2), *numbers, *categories]


def text_of(rows: int) -> str:
    return "".join("\t".join(line(row)) + "\n" for row in range(rows))


def load(path: Path, text: str | None = None, **options: object) -> Table:
    if text is not None:
        path.write_text(text)
    return load_table(DataSource(source="criteo", path=str(path), **options))  # type: ignore[arg-type]


def test_the_whole_file(tmp_path: Path) -> None:
    table = load(tmp_path / "train.txt", text_of(4))
    assert table.ids == ("0", "1", "2", "3")
    assert table.label is not None
    assert table.label.to_pylist() == ["0", "1", "0", "0"]
    assert tuple(table.columns.column_names) == COLUMNS
    assert table.columns["i1"].to_pylist() == [0.0, 100.0, 200.0, 300.0]
    assert table.columns["i13"].to_pylist() == [None] * 4
    assert table.columns["c1"].to_pylist() == [line(row)[14] for row in range(4)]
    assert table.columns["c26"].to_pylist() == [None] * 4
    assert table.origin == "train.txt"


def test_parties_take_their_columns(tmp_path: Path) -> None:
    whole = load(tmp_path / "train.txt", text_of(6))
    labels = load(tmp_path / "train.txt", columns="labels")
    parts = [load(tmp_path / "train.txt", columns="features", part=part) for part in ("1/2", "2/2")]
    assert labels.label == whole.label
    assert labels.columns.num_columns == 0
    assert [name for part in parts for name in part.columns.column_names] == list(COLUMNS)
    assert all(part.label is None and part.ids == whole.ids for part in parts)
    assert parts[1].columns == whole.columns.select(parts[1].columns.column_names)


def test_gzip_and_the_first_rows(tmp_path: Path) -> None:
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(text_of(9).encode()))
    table = load(tmp_path / "train.txt.gz", rows=5)
    assert len(table.ids) == table.columns.num_rows == 5
    assert table.label is not None
    assert len(table.label) == 5


def test_a_file_of_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo, "_BLOCK_BYTES", 2000)
    table = load(tmp_path / "train.txt", text_of(50), rows=40)
    assert table.columns["c1"].num_chunks > 1
    assert table.columns["c1"].to_pylist() == [line(row)[14] for row in range(40)]
    assert table.columns["i2"].to_pylist() == [row * 100 + 1.0 for row in range(40)]


def test_a_column_of_ids(tmp_path: Path) -> None:
    text = "".join("\t".join([f"impression-{row}", *line(row)]) + "\n" for row in range(3))
    table = load(tmp_path / "train.txt", text, id=0)
    assert table.ids == ("impression-0", "impression-1", "impression-2")
    assert table.columns["i1"].to_pylist() == [0.0, 100.0, 200.0]


def test_errors_say_where(tmp_path: Path) -> None:
    path, lines = tmp_path / "train.txt", text_of(4).splitlines()
    short = "\n".join([*lines[:2], "1\tsecret", lines[3]])
    with pytest.raises(DataError, match="train.txt, line 3: 2 values between tabs, expected 40: label, 13 ") as error:
        load(path, short)
    assert "secret" not in str(error.value)
    word = "\n".join([lines[0], lines[1].replace("\t101\t", "\tsecret\t"), *lines[2:]])
    with pytest.raises(DataError, match="train.txt, line 2: column 'i2' has a value that is no number") as error:
        load(path, word)
    assert "secret" not in str(error.value)
    load(path, word, columns="labels")
    with pytest.raises(DataError, match="1 labels are not 0 or 1, the first in line 4"):
        load(path, "\n".join([*lines[:3], "2" + lines[3][1:]]))
    header = "\t".join(["label", *COLUMNS])
    with pytest.raises(DataError, match="the file has a header, take `source: csv` for it"):
        load(path, f"{header}\n{text_of(2)}", columns="labels")
    with pytest.raises(DataError, match="train.txt has no rows"):
        load(path, "")
    with pytest.raises(DataError, match="nothing.txt does not exist"):
        load(tmp_path / "nothing.txt")
    (tmp_path / "broken.gz").write_bytes(gzip.compress(text_of(4).encode())[:40])
    with pytest.raises(DataError, match=r"broken\.gz cannot be read"):
        load(tmp_path / "broken.gz")
    for column, value, kind in (("i2", "101", "number"), ("c2", line(0)[15], "UTF-8 text")):
        path.write_text(text_of(4).replace(value, "\udcff", 1), errors="surrogateescape")
        with pytest.raises(DataError, match=f"column '{column}' has a value that is no {kind}"):
            load(path)


def test_an_error_in_a_later_block_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo, "_BLOCK_BYTES", 2000)
    lines = text_of(40).splitlines()
    lines[30] = "too short"
    with pytest.raises(DataError, match="line 31: 1 values"):
        load(tmp_path / "train.txt", "\n".join(lines))


@pytest.mark.parametrize(
    ("options", "said"), [({"rows": 0}, "rows is a number above 0"), ({"id": 41}, "id is a position")]
)
def test_wrong_options(tmp_path: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(PluginError, match=said):
        load(tmp_path / "train.txt", text_of(1), **options)
