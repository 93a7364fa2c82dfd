"""CSV files as people have them: what is read, and what is said where nothing can be read."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.common.config import DataSource
from cutlayer.common.datasets import load_table
from cutlayer.common.datasets.columns import MISSING
from cutlayer.common.errors import DataError
from cutlayer.common.tables import Table

Load = Callable[..., Table]


def values(table: Table) -> dict[str, list[object]]:
    return {name: column.to_pylist() for name, column in zip(table.columns.column_names, table.columns, strict=True)}


def test_a_plain_file(load: Load) -> None:
    table = load("id,y,a,b\nu0,1,0.5,red\nu1,0,-1e2,blue\n", label="y")
    assert table.ids == ("u0", "u1")
    assert table.label is not None
    assert table.label.to_pylist() == ["1", "0"]
    assert values(table) == {"a": [0.5, -100.0], "b": ["red", "blue"]}
    assert table.columns.schema.types == [pa.float64(), pa.string()]
    assert table.origin == "partner.csv"
    assert table.notes == ()


# How the file is written.


@pytest.mark.parametrize("mark", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_byte_order_marks_and_line_endings_make_no_difference(load: Load, mark: str, ending: str) -> None:
    text = ending.join(["id,größe", "ü0,1", "ü1,2", ""])
    before = codecs.BOM_UTF16_BE if mark == "utf-16-be" else b""
    table = load(before + text.encode(mark))
    assert table.ids == ("ü0", "ü1")
    assert values(table) == {"größe": [1.0, 2.0]}


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", ", "])
def test_the_separator_is_found(load: Load, separator: str) -> None:
    rows = [["id", "a", "b"], ["u0", "1", "x"], ["u1", "2", "y"]]
    table = load("\n".join(map(separator.join, rows)))
    assert values(table) == {"a": [1.0, 2.0], "b": ["x", "y"]}


def test_separators_inside_values_do_not_mislead(load: Load) -> None:
    table = load("id;note;n\nu0;a, b, c;1\nu1;d, e;2\nu2;f|g;3\n")
    assert values(table) == {"note": ["a, b, c", "d, e", "f|g"], "n": [1.0, 2.0, 3.0]}


def test_a_separator_can_be_given(load: Load) -> None:
    assert values(load("id:a\nu0:1,5\n", separator=":")) == {"a": ["1,5"]}
    for tab in ("\t", r"\t", "tab"):
        assert values(load("id\ta,b\nu0\t1\n", separator=tab)) == {"a,b": [1.0]}


@pytest.mark.parametrize("separator", ["", "::", '"', "\n"])
def test_a_separator_is_one_character(load: Load, separator: str) -> None:
    with pytest.raises(DataError, match="expected one character"):
        load("id:a\n", separator=separator)


def test_quoted_values_may_hold_anything(load: Load) -> None:
    table = load('id,"straße, nr","b"\nu0,"say ""x, y""","1"\nu1,"two\nlines",2\n')
    assert values(table) == {"straße, nr": ['say "x, y"', "two\nlines"], "b": [1.0, 2.0]}
    assert "1 line break inside quotes" in table.notes[0]


def test_quotes_after_a_space_are_quotes(load: Load) -> None:
    assert values(load('id, a, b\nu0, "x, y", 1\n\nu1, z, 2\n')) == {"a": ["x, y", "z"], "b": [1.0, 2.0]}


def test_literal_quotes(load: Load) -> None:
    table = load('"A fine film.\t1\nHe said "no".\t0\n', quoting=False, label=1)
    assert values(table) == {"c0": ['"A fine film.', 'He said "no".']}


def test_a_quote_that_is_never_closed(load: Load) -> None:
    with pytest.raises(DataError, match=r"a quote is never closed.*quoting: false"):
        load('id,a\nu0,"x\nu1,y\nu2,z\n')


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1,2\n3,4\n", ["c0", "c1"]),
        ("u0,1\nu1,2\n", ["c0", "c1"]),
        ("word,0,1\nx,5,6\n", ["c0", "c1", "c2"]),
        ("5,0,1\nlabel,5,6\n", ["c0", "c1", "c2"]),
        ("label,0,1\n3,5,6\n", ["label", "0", "1"]),
        ("red,blue\nx,y\n", ["red", "blue"]),
        ("?,1\n2,3\n", ["c0", "c1"]),
    ],
)
def test_the_header_is_found(load: Load, text: str, names: list[str]) -> None:
    table = load(text)
    assert table.columns.column_names == names
    assert any("no header found" in note for note in table.notes) == (names[0] == "c0")


def test_a_name_in_the_run_file_tells_the_header(load: Load) -> None:
    assert values(load("1,y\nu,w\n", label="y")) == {"1": ["u"]}


def test_whether_there_is_a_header_can_be_said(load: Load) -> None:
    assert values(load("red,blue\nx,y\n", header=False)) == {"c0": ["red", "x"], "c1": ["blue", "y"]}
    assert values(load("1,2\n3,4\n", header=True)) == {"1": [3.0], "2": [4.0]}


def test_blank_lines_are_no_rows_but_in_a_single_column_they_are_missing_values(load: Load) -> None:
    assert values(load("\n\na,b\n\n1,2\n\n\n3,4\n\n")) == {"a": [1.0, 3.0], "b": [2.0, 4.0]}
    assert values(load("\na\n1\n\n3\n\n\n")) == {"a": [1.0, None, 3.0]}


@given(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs", "Cc"]))] * 2), min_size=1, max_size=5))
def test_quoted_text_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("quoted") / "x.csv"
    cells = [[cell.replace('"', '""') for cell in row] for row in rows]
    path.write_text("left,right\n" + "".join(f'"{a}","{b}"\n' for a, b in cells), encoding="utf-8")
    table = load_table(DataSource(source="csv", path=str(path), categorical=["left", "right"]))  # type: ignore[call-arg]
    for name, written in zip(("left", "right"), zip(*rows, strict=True), strict=True):
        expected = pc.utf8_normalize(pc.utf8_trim_whitespace(pa.array(written)), form="NFC").to_pylist()
        assert values(table)[name] == [None if text.lower() in MISSING else text for text in expected]


# Files that cannot be read.


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("id,y,a\n", r"^label\.csv has no rows$"),
        ("id,y,a", r"^label\.csv has no rows$"),
        ("", r"^label\.csv has no rows: the file is empty$"),
        ("\ufeff\r\n\n", r"^label\.csv has no rows: the file is empty$"),
        ("id,a\nu0,1\nu1,2,3\nu2\n", r"^label\.csv, row 2 \(line 3\): 3 values, expected 2 .*2 rows .*taken to be ','"),
        ('id,a\nu0,"x\ny"\n\nu1\n', r"^label\.csv, row 2 \(line 5\): 1 value, expected 2"),
        ("id,a\nköln,1\n".encode("latin-1"), r"^label\.csv: byte 6 \(line 2\) is not UTF-8; save the file as UTF-8$"),
        ("id,a\nu0,1\n".encode("utf-16-le"), r"^label\.csv: byte 1 is a NUL"),
        (b"\xff\xfei", r"^label\.csv: byte \d \(line 1\) is not UTF-16"),
    ],
)
def test_files_that_cannot_be_read(load: Load, content: str | bytes, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        load(content, "label.csv")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    for path, problem in ((tmp_path, "is a folder"), (tmp_path / "none.csv", "does not exist")):
        with pytest.raises(DataError, match=problem):
            load_table(DataSource(source="csv", path=str(path)))  # type: ignore[call-arg]
