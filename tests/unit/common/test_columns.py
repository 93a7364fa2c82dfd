"""Which column of a file is what, and what ids, labels and values become."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.common.alignment import OwnIds, common_rows, explain_no_match
from cutlayer.common.datasets.columns import NUMBER
from cutlayer.common.errors import DataError
from cutlayer.common.tables import Table

Load = Callable[..., Table]


def values(table: Table) -> dict[str, list[object]]:
    return {name: column.to_pylist() for name, column in zip(table.columns.column_names, table.columns, strict=True)}


def matched(one: Table, other: Table) -> int:
    masks = common_rows([OwnIds(table.ids, b"secret").digests for table in (one, other)])
    return int(masks[0].sum())


# Which column is what.


def test_columns_are_named_by_position_too(load: Load) -> None:
    table = load("7,1,2,9\n8,3,4,9\n", id=0, label=-1, drop=["c1"])
    assert table.ids == ("7", "8")
    assert table.label is not None
    assert table.label.to_pylist() == ["9", "9"]
    assert values(table) == {"c2": [2.0, 4.0]}


def test_without_an_id_column_rows_are_numbered(load: Load) -> None:
    table = load("a,b\n1,2\n3,4\n")
    assert table.ids == ("0", "1")
    assert "no id column" in table.notes[0]


@pytest.mark.parametrize("name", ["id", "ID", "Id"])
def test_the_id_column_is_found_by_its_name(load: Load, name: str) -> None:
    assert load(f"a,{name}\n1,u0\n").ids == ("u0",)


def test_the_id_column_is_not_what_is_dropped(load: Load) -> None:
    table = load("id,a\nu0,1\n", drop=["id"])
    assert table.ids == ("0",)
    assert values(table) == {"a": [1.0]}


def test_one_list_decides_for_its_columns_alone(load: Load) -> None:
    text = "id,a,b,c\nu0,1,2,x\nu1,3,4,y\n"
    assert values(load(text, categorical=["b"])) == {"a": [1.0, 3.0], "b": ["2", "4"], "c": ["x", "y"]}
    assert values(load(text, numeric=["b"])) == {"a": [1.0, 3.0], "b": [2.0, 4.0], "c": ["x", "y"]}


def test_both_lists_decide_for_all_columns(load: Load) -> None:
    table = load("id,a,b,c\nu0,1,2,x\n", numeric=["a"], categorical=["c"])
    assert values(table) == {"a": [1.0], "c": ["x"]}
    assert table.notes == ("partner.csv: columns left out: 'b'",)


@pytest.mark.parametrize("header", ["", "Unnamed: 0"])
def test_row_numbers_that_programs_leave_are_left_out(load: Load, header: str) -> None:
    text = f'"{header}",a\n"1",5\n"2",6\n'
    table = load(text)
    assert values(table) == {"a": [5.0, 6.0]}
    assert any("left out" in note for note in table.notes)
    assert load(text, id=0).ids == ("1", "2")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"label": "Y"}, "partner.csv, `label`: there is no column 'Y'; there are 'id', 'y', 'age'; did you mean 'y'?"),
        ({"numeric": ["zzz"]}, "partner.csv, `numeric`: there is no column 'zzz'; there are 'id', 'y', 'age'"),
        ({"drop": [3]}, "partner.csv, `drop`: there is no column 3; the 3 columns are counted from 0"),
        ({"id": -4}, "partner.csv, `id`: there is no column -4"),
        ({"label": "y", "numeric": ["y"]}, "column 'y' is under `label` and under `numeric`"),
    ],
)
def test_columns_that_do_not_exist_or_are_named_twice(load: Load, options: dict[str, object], problem: str) -> None:
    with pytest.raises(DataError, match=re.escape(problem)):
        load("id,y,age\nu0,1,2\n", **options)


def test_two_columns_of_one_name(load: Load) -> None:
    with pytest.raises(DataError, match="more than one column is called 'a'"):
        load("id,a,a\nu0,1,2\n")


# Ids.


def test_ids_stay_as_written(load: Load) -> None:
    table = load("id,a\n000017,1\n1.0,1\n1e3,1\nnull,1\n")
    assert table.ids == ("000017", "1.0", "1e3", "null")


def test_ids_with_leading_zeros_match(load: Load) -> None:
    label, partner = load("id,y\n000,1\n001,0\n"), load("id,p\n001,5\n000,6\n")
    assert matched(label, partner) == 2
    assert matched(label, load("id,p\n1,5\n0,6\n")) == 0


def test_whole_numbers_do_not_match_decimals_and_a_person_learns_why(load: Load) -> None:
    label, partner = load("id,y\n0,1\n1,0\n", "label.csv"), load("id,p\n0.0,5\n1.0,6\n")
    assert matched(label, partner) == 0
    forms = [OwnIds(table.ids, b"secret").form for table in (label, partner)]
    text = explain_no_match(forms[0], forms[1], 2, [2], label.origin)
    assert "label.csv: 0 of 2 rows match" in text
    assert "like 17, the other side as decimal numbers like 17.0" in text


def test_some_or_no_rows_match(load: Load) -> None:
    label = load("id,y\n" + "".join(f"u{i},1\n" for i in range(15)))
    assert matched(label, load("id,p\n" + "".join(f"u{i},1\n" for i in range(5, 20)))) == 10
    assert matched(label, load("id,p\n" + "".join(f"b{i},1\n" for i in range(15)))) == 0


def test_spaces_around_ids_are_trimmed_and_counted(load: Load) -> None:
    table = load("id,a\n u0,1\nu1 ,2\nu2,3\n")
    assert table.ids == ("u0", "u1", "u2")
    assert table.notes == ("partner.csv: spaces around 2 ids were trimmed",)


def test_ids_and_names_are_in_normal_form_c(load: Load) -> None:
    table = load("id,na\u0308he\nko\u0308ln-0,1\n")
    assert table.ids == ("k\u00f6ln-0",)
    assert table.columns.column_names == ["n\u00e4he"]


def test_repeated_ids_are_counted_and_not_shown(load: Load) -> None:
    rows = [f"zebra{i},1\n" for i in range(12)] + [f"zebra{i},1\n" for i in range(10)] + ["zebra0,1\n"]
    with pytest.raises(
        DataError, match=r"^10 ids occur more than once in partner\.csv.*keep one row for each id"
    ) as error:
        load("id,a\n" + "".join(rows))
    assert "zebra" not in str(error.value)


def test_missing_ids_are_counted(load: Load) -> None:
    with pytest.raises(DataError, match=r"partner\.csv: 2 rows have no id in column 'id'"):
        load("id,a\n,1\nu0,2\n  ,3\n")


# Values.


@pytest.mark.parametrize("missing", ["", "nan", "NaN", "NA", "N/A", "n/a", "null", "None", "?", '""', " "])
def test_missing_values(load: Load, missing: str) -> None:
    table = load(f"id,y,p,q\nu0,1,{missing},x\nu1,{missing},2,{missing}\n", label="y")
    assert values(table) == {"p": [None, 2.0], "q": ["x", None]}
    assert table.label is not None
    assert table.label.to_pylist() == ["1", None]
    assert "2 missing values in 2 rows ('p' 1, 'q' 1)" in table.notes[0]


@pytest.mark.parametrize("odd", ["inf", "-inf", "Infinity", "1e400", "-1e400"])
def test_numbers_that_are_not_finite_are_named_by_row_and_column(load: Load, odd: str) -> None:
    with pytest.raises(DataError, match=r"^partner\.csv, row 2 \(line 4\): column 'q' has 2 numbers that are") as error:
        load(f"id,p,q\nu0,1,1\n\nu1,1,{odd}\nu2,1,nan\nu3,1,{odd}\n")
    assert not re.search(rf"{odd}\b", str(error.value))


def test_text_in_a_column_of_numbers(load: Load) -> None:
    with pytest.raises(
        DataError, match=r"^partner\.csv, row 2 \(line 4\): column 'q' is listed .* 1 value that"
    ) as error:
        load('id,p,q\nu0,"a\nb",1\nu1,x,fig\nu2,x,\n', numeric=["q"])
    assert "fig" not in str(error.value)


def test_a_few_texts_among_numbers_make_categories_and_a_note(load: Load) -> None:
    table = load("id,p\nu0,1\nu1,n.d.\nu2,3\n")
    assert values(table) == {"p": ["1", "n.d.", "3"]}
    assert "1 of 3 values are no numbers, the first in row 2 (line 3)" in table.notes[0]


@given(st.from_regex(NUMBER, fullmatch=True).filter(str.isascii))
def test_what_counts_as_a_number_can_be_read_as_one(text: str) -> None:
    assert pa.array([text]).cast(pa.float64())[0].is_valid
