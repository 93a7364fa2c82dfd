"""Embedded and made-up data: each party makes its own columns of the same rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

from cutlayer.common.config import DataSource
from cutlayer.common.datasets import Dataset, datasets, load_table
from cutlayer.common.errors import DataError, PluginError
from cutlayer.common.tables import Table, prepare


def load(source: str, **options: object) -> Table:
    return load_table(DataSource(source=source, **options))  # type: ignore[arg-type]


EMBEDDED = [("breast_cancer", 569, 30, 2), ("digits", 1797, 64, 10), ("wine", 178, 13, 3)]


@pytest.mark.parametrize(("source", "rows", "columns", "classes"), EMBEDDED)
def test_embedded_data(source: str, rows: int, columns: int, classes: int) -> None:
    table = load(source)
    assert table.ids == tuple(map(str, range(rows)))
    assert (table.columns.num_rows, table.columns.num_columns) == (rows, columns)
    assert table.label is not None
    assert sorted(set(table.label.to_pylist())) == list(map(str, range(classes)))
    assert table.origin == source


def test_benign_is_1_as_in_scikit_learn() -> None:
    label = load("breast_cancer", columns="labels").label
    assert label is not None
    assert label.to_pylist().count("1") == 357


@pytest.mark.parametrize("source", ["breast_cancer", "digits", "wine", "click_log"])
def test_parties_take_their_columns_of_the_same_rows(source: str) -> None:
    options: dict[str, object] = {"rows": 50, "seed": 3} if source == "click_log" else {}
    whole = load(source, **options)
    labels = load(source, columns="labels", **options)
    parts = [load(source, columns="features", part=f"{i}/3", **options) for i in (1, 2, 3)]
    assert labels.label == whole.label
    assert labels.columns.num_columns == 0
    assert [name for part in parts for name in part.columns.column_names] == whole.columns.column_names
    for part in parts:
        assert part.label is None
        assert part.ids == whole.ids
        assert part.columns == whole.columns.select(part.columns.column_names)


def test_both_is_a_part_and_the_label() -> None:
    table = load("wine", part="2/13")
    assert table.columns.column_names == ["malic_acid"]
    assert table.label is not None


@pytest.mark.parametrize("part", ["0/2", "3/2", "1/14", "half", "1/2/3", "-1/2"])
def test_a_part_that_is_no_share(part: str) -> None:
    with pytest.raises(DataError, match=f"part: '{part}': expected i/n"):
        load("wine", part=part)


@pytest.mark.parametrize(
    ("part", "image"),
    [(None, (1, 8, 8)), ("1/2", (1, 4, 8)), ("2/2", (1, 4, 8)), ("3/8", (1, 1, 8)), ("1/3", None), ("1/16", None)],
)
def test_digits_are_images_of_whole_pixel_rows(part: str | None, image: tuple[int, int, int] | None) -> None:
    assert load("digits", part=part).image == image


def test_an_image_can_be_prepared() -> None:
    table = load("digits", columns="features", part="2/2")
    rows = np.arange(len(table.ids))
    features = prepare(table, rows, rows, standardise=True)
    assert features.spec.image == (1, 4, 8)
    assert features.x_NF.mean().item() == pytest.approx(0, abs=1e-5)
    assert features.x_NF.std().item() == pytest.approx(1, abs=1e-3)
    assert load("digits", columns="labels").image is None


def test_clicks_have_the_shape_of_criteo() -> None:
    table = load("click_log", rows=4000, positives=0.1)
    kinds = [pa.types.is_floating(kind) for kind in table.columns.schema.types]
    assert kinds == [True] * 13 + [False] * 26
    assert table.label is not None
    assert table.label.to_pylist().count("1") == 400
    for name in table.columns.column_names[:13]:
        numbers = table.columns[name].drop_null().to_numpy()
        assert numbers.mean() > np.median(numbers), name  # a heavy tail
    assert sum(column.null_count > 0 for column in table.columns) > 30


def test_category_frequencies_follow_a_power_law() -> None:
    table = load("click_log", rows=20_000, columns="features", part="2/2")
    column = max(table.columns, key=lambda column: len(column.unique()))
    counts = np.sort(column.drop_null().value_counts().field("counts").to_numpy())[::-1]
    # P(r) = log(1 + 1/r) / log(K + 1): the first category is log 2 / log(1 + 1/10) as frequent as the tenth.
    assert counts[0] / counts[9] == pytest.approx(np.log(2) / np.log(1.1), rel=0.3)
    assert len(counts) > 1000


def test_the_columns_are_the_same_for_any_number_of_rows() -> None:
    few, many = (load("click_log", rows=rows, columns="features", part="1/2") for rows in (10, 20))
    assert few.columns.to_pydict() == many.columns.slice(0, 10).to_pydict()


def test_another_seed_is_another_log() -> None:
    one, other = (load("click_log", rows=200, seed=seed) for seed in (0, 1))
    assert one.label != other.label
    assert all(one.columns[name] != other.columns[name] for name in one.columns.column_names)


def test_the_clicks_do_not_change_between_versions() -> None:
    table = load("click_log", rows=8, seed=7)
    assert table.label is not None
    assert "".join(table.label.to_pylist()) == "00000110"
    assert table.columns["i1"].to_pylist() == [5.0, 8.0, None, 1.0, 1.0, 5.0, 29.0, None]
    assert table.columns["c1"].to_pylist() == [
        "78dde6c4",
        "78dde6c4",
        "78dde6c4",
        "9e3779b1",
        "3c6ef362",
        None,
        "78dde6c4",
        "3c6ef362",
    ]


@pytest.mark.parametrize("part", ["1/2", "2/2"])
def test_each_half_tells_something_about_a_click(part: str) -> None:
    label = load("click_log", rows=20_000, columns="labels").label
    assert label is not None
    y_N = np.array(label.to_pylist()) == "1"
    score_N = np.zeros(len(y_N))
    for column in load("click_log", rows=20_000, columns="features", part=part).columns:
        codes_N = _codes(column)
        rows, clicks = np.bincount(codes_N[::2]), np.bincount(codes_N[::2], weights=y_N[::2])
        rate = (clicks + 2.5) / (rows + 10)
        score_N += np.log(rate / (1 - rate))[codes_N]
    assert roc_auc_score(y_N[1::2], score_N[1::2]) > 0.6


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """Categories, or deciles of numbers, counted from 0."""
    if not pa.types.is_floating(column.type):
        codes: np.ndarray = column.fill_null("").combine_chunks().dictionary_encode().indices.to_numpy()
        # Few rows of the odd half have a category that no row of the even half has.
        return np.minimum(codes, codes[::2].max())
    numbers = column.fill_null(-1).to_numpy()
    return np.searchsorted(np.quantile(numbers, np.arange(0.1, 1, 0.1)), numbers)


@pytest.mark.parametrize("options", [{"rows": 0}, {"positives": 1.0}, {"positives": 0}, {"columns": "all"}])
def test_options_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(PluginError, match=f"data source 'click_log'.*{min(options)}"):
        load("click_log", **options)


def test_a_source_of_the_users_own() -> None:
    @dataclass(kw_only=True)
    class Mine(Dataset):
        value: float

        def load(self) -> Table:
            return Table(("a",), pa.table({"x": [self.value]}), None, "mine")

    datasets.register("mine_of_this_test")(Mine)
    assert load("mine_of_this_test", value=2).columns.to_pydict() == {"x": [2.0]}


def test_the_built_in_sources() -> None:
    assert {"breast_cancer", "click_log", "csv", "digits", "parquet", "wine"} <= set(datasets.names())


def test_an_option_that_no_source_has() -> None:
    with pytest.raises(PluginError, match="data source 'wine' has no option 'path'; it has: columns, part"):
        load("wine", path="x")
