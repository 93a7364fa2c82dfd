"""From a table to a model's input: fitted on the training rows, always finite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cutlayer.common.errors import DataError
from cutlayer.common.tables import Features, Image, InputSpec, Table, listed, prepare


def table(columns: dict[str, pa.Array | list[object]], image: Image | None = None) -> Table:
    made = pa.table(columns)
    return Table(tuple(map(str, range(made.num_rows))), made, None, "clinic.csv", image)


def ready(columns: dict[str, pa.Array | list[object]], train: Sequence[int], **options: object) -> Features:
    made = table(columns, options.pop("image", None))  # type: ignore[arg-type]
    order = options.pop("order", range(len(made.ids)))
    standardise = bool(options.pop("standardise", True))
    assert not options
    return prepare(made, np.array(order, dtype=np.int64), np.array(train, dtype=np.int64), standardise)  # type: ignore[arg-type]


def test_numbers_get_mean_0_and_deviation_1_over_the_training_rows_alone() -> None:
    x_NF = ready({"a": [1.0, 3.0, 100.0]}, train=[0, 1]).x_NF
    assert x_NF.tolist() == [[-1.0], [1.0], [98.0]]
    assert x_NF.dtype == torch.float32


def test_without_standardising_numbers_stay() -> None:
    assert ready({"a": [1.0, None, 5.0]}, train=[0, 2], standardise=False).x_NF.tolist() == [[1.0], [3.0], [5.0]]


def test_a_missing_number_becomes_the_training_mean() -> None:
    x_NF = ready({"a": [1.0, 3.0, None, 50.0]}, train=[0, 1, 2]).x_NF
    assert x_NF[2].item() == 0.0
    # Deviation of what is known, not of what was filled in.
    assert x_NF[:2, 0].tolist() == [-1.0, 1.0]


def test_rows_come_in_aligned_order_and_training_rows_are_aligned_ones() -> None:
    features = ready({"a": [10.0, 20.0, 30.0, 40.0], "b": ["w", "x", "y", "z"]}, order=[3, 1, 0], train=[0, 1])
    assert features.x_NF.tolist() == [[1.0, 2.0], [-1.0, 1.0], [-2.0, 0.0]]


def test_a_constant_column_becomes_zeros_with_one_note() -> None:
    features = ready({"p": [0.1] * 7 + [0.2], "q": [1.0, 2.0] * 4}, train=range(7))
    assert features.x_NF[:, 0].tolist() == [0.0] * 8
    assert features.notes == ("clinic.csv: constant in the training rows, taken as zeros: 'p'",)


def test_a_column_without_a_number_in_the_training_rows_becomes_zeros_with_one_note() -> None:
    empty = pa.array([None, None, None], pa.float64())
    features = ready({"p": empty, "q": [None, None, 4.0], "r": [1.0, 2.0, 3.0]}, train=[0, 1])
    assert features.x_NF[:, :2].tolist() == [[0.0, 0.0]] * 3
    assert features.notes == ("clinic.csv: missing everywhere in the training rows, taken as zeros: 'p', 'q'",)


def test_categories_are_numbered_by_text_and_0_is_missing_or_unseen() -> None:
    features = ready({"c": ["pear", "fig", None, "apple", "pear", "kiwi"]}, train=[0, 1, 2, 4])
    assert features.x_NF[:, 0].tolist() == [2.0, 1.0, 0.0, 0.0, 2.0, 0.0]
    assert features.spec == InputSpec(numeric=0, cardinalities=(3,))


def test_how_a_column_is_stored_makes_no_difference_to_its_codes() -> None:
    texts = ["b", None, "a", "b"]
    plain, chunked = pa.array(texts), pa.chunked_array([["b", None], ["a", "b"]])
    encoded = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 1]), pa.array(["a", "b", "b"]))
    for column in (plain, chunked, encoded, pa.array(texts, pa.large_string())):
        assert ready({"c": column}, train=range(4)).x_NF[:, 0].tolist() == [2.0, 0.0, 1.0, 2.0]


def test_numbers_come_first_and_the_spec_says_so() -> None:
    features = ready({"c": ["a", "b"], "n": [1, 3], "d": ["x", "x"]}, train=[0, 1])
    assert features.x_NF.tolist() == [[-1.0, 1.0, 1.0], [1.0, 2.0, 1.0]]
    assert features.spec == InputSpec(1, (3, 2))
    assert features.spec.width == 3


def test_an_image_is_scaled_as_a_whole() -> None:
    features = ready({"a": [0.0, 0.0, 9.0], "b": [2.0, 2.0, 9.0]}, train=[0, 1], image=(1, 1, 2))
    assert features.x_NF[:2].tolist() == [[-1.0, 1.0]] * 2
    assert features.spec == InputSpec(2, (), (1, 1, 2))
    assert features.notes == ()


def test_an_image_of_another_size_is_refused() -> None:
    with pytest.raises(DataError, match=r"clinic\.csv: an image of 6 pixels, but 1 numeric columns"):
        ready({"a": [0.0, 1.0]}, train=[0, 1], image=(1, 2, 3))


@pytest.mark.parametrize(
    ("value", "train", "standardise"),
    [(np.inf, [0, 1], True), (-np.inf, [0, 2], True), (np.inf, [1, 2], True), (1e300, [1, 2], True)]
    + [(np.inf, [0, 1], False), (1e300, [0, 1], False)],
)
def test_numbers_too_large_are_refused_by_column(value: float, train: list[int], standardise: bool) -> None:
    with pytest.raises(DataError, match=r"clinic\.csv: column 'q': numbers that are infinite or too large"):
        ready({"p": [1.0, 2.0, 3.0], "q": [value, 1.0, 2.0]}, train=train, standardise=standardise)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1.0, 1e200, 1e307])
def test_the_size_of_numbers_does_not_matter_to_standardising(scale: float) -> None:
    x_NF = ready({"a": [scale, 3 * scale, None]}, train=[0, 1, 2]).x_NF
    assert x_NF[:, 0].tolist() == pytest.approx([-1.0, 1.0, 0.0])


def test_a_table_without_features_is_refused() -> None:
    with pytest.raises(DataError, match="there are no feature columns"):
        ready({}, train=[])


@given(hnp.arrays(np.float64, (12, 3), elements=st.floats(-1e38, 1e38) | st.just(np.nan)), st.booleans())
def test_the_input_is_finite_whatever_the_table(values: np.ndarray, standardise: bool) -> None:
    columns: dict[str, pa.Array | list[object]] = {str(i): pa.array(values[:, i], from_pandas=True) for i in range(3)}
    features = ready(columns, train=range(12), standardise=standardise)
    assert bool(features.x_NF.isfinite().all())
    if standardise:
        assert features.x_NF.abs().max() <= 12**0.5 + 1e-3


@given(st.lists(st.sampled_from(["", "a", "ä", "zz", "名"]) | st.none(), min_size=1, max_size=20), st.data())
def test_codes_tell_training_categories_apart(texts: list[str | None], data: st.DataObject) -> None:
    train = data.draw(st.lists(st.integers(0, len(texts) - 1), unique=True))
    features = ready({"c": pa.array(texts, pa.string())}, train=train)
    known = sorted({text for i in train if (text := texts[i]) is not None})
    assert features.x_NF[:, 0].tolist() == [known.index(t) + 1 if t in known else 0 for t in texts]
    assert features.spec.cardinalities == (len(known) + 1,)


def test_many_names_are_cut_short() -> None:
    assert listed(list("abc"), most=3) == "'a', 'b', 'c'"
    assert listed(list("abcd"), most=2) == "'a', 'b' and 2 more"
