"""What labels may look like, and what is said where they do not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.common.errors import DataError
from cutlayer.common.labels import Labels, Positive, read_labels, require_classes
from cutlayer.common.tables import Table

Values = list[str | None]


def read(values: Values, *, positive: Positive = None, classes: int | None = None, missing: str = "error") -> Labels:
    table = Table(tuple(map(str, range(len(values)))), pa.table({}), pa.array(values, pa.string()), "bank.csv")
    task = "binary" if classes is None else "multiclass"
    return read_labels(table, task=task, classes=classes or 2, positive=positive, missing_label=missing)


@pytest.mark.parametrize(
    "values",
    [["1", "0", "1"], ["1.0", "0.0", "1.0"], ["1", "0.0", "1.0"], ["1", "-1", "1"], ["1.0", "-1.0", "1"]]
    + [["true", "false", "true"], ["True", "FALSE", "TRUE"]],
)
def test_usual_binary_labels(values: Values) -> None:
    labels = read(values)
    assert labels.y.tolist() == [1, 0, 1]
    assert labels.y.dtype == np.int64
    assert labels.keep.all()
    assert labels.notes == ()


@pytest.mark.parametrize(("value", "expected"), [("1", 1), ("0", 0), ("-1", 0), ("true", 1)])
def test_one_class_is_read_and_refused_only_for_training(value: str, expected: int) -> None:
    labels = read([value] * 3)
    assert labels.y.tolist() == [expected] * 3
    with pytest.raises(DataError, match="the 3 training rows have 1 class, expected 2"):
        require_classes(labels.y, "binary")


@pytest.mark.parametrize(("y", "task"), [([0, 1, 1], "binary"), ([0, 2, 2], "multiclass")])
def test_two_classes_are_enough_to_train(y: list[int], task: str) -> None:
    require_classes(np.array(y, dtype=np.int64), task)


@pytest.mark.parametrize(
    ("values", "odd"),
    [(["Yes", "No", "No"], "; 3 rows have something else"), (["1", "2"], "; 1 row has something else")],
)
def test_two_other_values_need_positive(values: Values, odd: str) -> None:
    expected = f"has 2 different values, expected 0 and 1, -1 and 1, or false and true{odd}; say which value counts as "
    with pytest.raises(DataError, match=re.escape(f"{expected}1 against the other, in the label party's data: `pos")):
        read(values)


@pytest.mark.parametrize("values", [["Ada Byron", "Alan T"], ["Ada Byron", "Alan T", "x9"], ["0", "1", "Ada Byron"]])
@pytest.mark.parametrize("options", [{}, {"positive": "Grace"}, {"classes": 9}], ids=str)
def test_no_label_is_shown(values: Values, options: dict[str, Any]) -> None:
    """The column may be another than a person thinks, and what is said goes to a log."""
    with pytest.raises(DataError) as error:
        read(values, **options)
    assert [value for value in ("Ada", "Alan", "x9") if value in str(error.value)] == []


@pytest.mark.parametrize(
    ("values", "positive"),
    [
        (["Yes", "No"], "Yes"),
        (["Yes", "No"], True),
        (["on", "off"], True),
        (["no", "yes"], False),
        (["3", "8"], 3),
        (["3.0", "8.0"], 3),
        (["3", "8"], "3.0"),
        (["0.5", "8"], 0.5),
        (["k\u00f6ln", "bonn"], "ko\u0308ln"),
    ],
)
def test_positive_names_the_value_that_counts_as_1(values: Values, positive: Positive) -> None:
    assert read(values, positive=positive).y.tolist() == [1, 0]


def test_positive_is_one_against_all_others() -> None:
    assert read(["3", "0", "9", "3", "1"], positive=3).y.tolist() == [1, 0, 0, 1, 0]


def test_positive_is_compared_in_its_case() -> None:
    with pytest.raises(
        DataError, match="`positive` is 'yes', and no label is; the label column has 2 different values"
    ):
        read(["Yes", "No"], positive="yes")


def test_more_than_two_values_need_positive() -> None:
    with pytest.raises(
        DataError, match="the label column has 3 different values, .*4 rows .*`positive: ...`, or write task: m"
    ):
        read(["a", "b", "c", "a"])


@pytest.mark.parametrize(("count", "rows"), [(9, "9 rows have"), (1, "1 row has")])
def test_missing_labels_are_refused_or_dropped(count: int, rows: str) -> None:
    values: Values = ["1", *[None] * count, "0"]
    with pytest.raises(DataError, match=rf"bank\.csv: {rows} no label; `missing_label: drop` drops"):
        read(values)
    labels = read(values, missing="drop")
    assert labels.y.tolist() == [1, *[-1] * count, 0]
    assert labels.keep.tolist() == [True, *[False] * count, True]
    assert len(labels.notes) == 1
    assert rows in labels.notes[0]


def test_no_label_at_all() -> None:
    with pytest.raises(DataError, match="no row has a label"):
        read([None, None], missing="drop")


def test_no_label_column() -> None:
    table = Table(("0",), pa.table({}), None, "bank.csv")
    with pytest.raises(DataError, match=re.escape("bank.csv: there is no label column; name it with `label: ...`")):
        read_labels(table, task="binary", classes=2, positive=None, missing_label="error")


@pytest.mark.parametrize(
    ("values", "expected", "notes"),
    [
        (["2", "0", "1"], [2, 0, 1], 0),
        (["2.0", "0", "1"], [2, 0, 1], 0),
        (["1", "2", "10"], [0, 1, 2], 1),
        (["setosa", "versicolor", "setosa", "b"], [1, 2, 1, 0], 1),
        (["x", "10", "9"], [2, 0, 1], 1),
    ],
)
def test_classes_are_numbered_in_order(values: Values, expected: list[int], notes: int) -> None:
    labels = read(values, classes=3)
    assert labels.y.tolist() == expected
    assert len(labels.notes) == notes


def test_notes_show_no_label() -> None:
    labels = read(["setosa", None, "versicolor"], classes=2, missing="drop")
    assert labels.notes
    assert not any("setosa" in note for note in labels.notes)


@pytest.mark.parametrize("values", [["0", "1"], ["0", "3"], ["0", "1", "2", "3"]])
def test_another_number_of_classes_is_refused(values: Values) -> None:
    with pytest.raises(DataError, match=f"has {len(values)} different values, but job.classes is 3"):
        read(values, classes=3)
