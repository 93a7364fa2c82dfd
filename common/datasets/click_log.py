"""A made-up click log with as many numeric and categorical columns as Criteo's, and as uneven ones.

Every column comes from a stream of its own, so that parties who make only their own columns, on different hosts,
hold the very rows that a party who makes all of them holds.

Shape suffixes: N rows, K categories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, PositiveInt
from scipy.special import ndtri

from cutlayer.common.datasets.base import SharedRows, datasets, row_numbers
from cutlayer.common.randomness import Noise, public_key
from cutlayer.common.tables import Table

NUMERIC, CATEGORICAL = 13, 26
COLUMNS = (*(f"i{n}" for n in range(1, NUMERIC + 1)), *(f"c{n}" for n in range(1, CATEGORICAL + 1)))

Numbers = npt.NDArray[np.float64]

_SIGNAL = 2.0  # deviation of what the columns tell about a click; what they do not tell is logistic noise of scale 1
_NUMERIC_SHARE = 0.5  # of the variance of the signal
_MOST_MISSING = 0.3
_FEWEST_CATEGORIES, _MOST_CATEGORIES = 4, 10_000
_HASH = 2_654_435_761  # odd: different ranks have different products modulo 2**32


@datasets.register("click_log")
@dataclass(kw_only=True)
class ClickLog(SharedRows):
    """Made-up clicks: 13 heavy-tailed numeric and 26 categorical columns of power-law frequencies, all independent.

    Each value of a row adds to its inclination to click; the rows where this and logistic noise sum up to the most are
    clicks, label 1. No column tells the label by itself.

    Args:
        rows: number of rows.
        positives: share of clicks.
        seed: another seed, another log; all parties use the same.
    """

    rows: PositiveInt = 100_000
    positives: Annotated[float, Field(gt=0, lt=1)] = 0.25
    seed: int = 0

    def load(self) -> Table:
        own = self.own_part(len(COLUMNS))
        columns, inclination_N = {}, np.zeros(self.rows)
        for position in range(len(COLUMNS)) if self.wants_label else own:
            values, effect_N = self._column(position)
            inclination_N += effect_N
            if position in own:
                columns[COLUMNS[position]] = values
        label = self._label(inclination_N) if self.wants_label else None
        return Table(row_numbers(self.rows), pa.table(columns), label, "click_log")

    def _column(self, position: int) -> tuple[pa.Array, Numbers]:
        """The values of a column, and what each adds to the inclination; a missing one adds nothing."""
        stream = _Stream(self.seed, COLUMNS[position])
        make = _numeric if position < NUMERIC else _categorical
        return make(stream, self.rows)

    def _label(self, inclination_N: Numbers) -> pa.Array:
        u_N = _Stream(self.seed, "label").uniform(self.rows)
        total_N = _SIGNAL * inclination_N + np.log(u_N / (1 - u_N))
        y_N = np.zeros(self.rows, dtype=np.int64)
        y_N[np.argsort(-total_N, kind="stable")[: round(self.positives * self.rows)]] = 1
        return pa.array(y_N).cast(pa.string())


class _Stream:
    """The random numbers of one column."""

    def __init__(self, seed: int, name: str) -> None:
        self._noise = Noise(public_key("click_log", seed, name))

    def uniform(self, count: int) -> Numbers:
        """Numbers in (0, 1)."""
        numbers: Numbers = self._noise.uniform((count,)).numpy()
        return numbers

    def normal(self, count: int) -> Numbers:
        """Standard normal numbers, of double precision."""
        numbers: Numbers = ndtri(self.uniform(count))
        return numbers


def _numeric(stream: _Stream, rows: int) -> tuple[pa.Array, Numbers]:
    """Counts of a log-normal law; the inclination rises, falls or bends with their logarithm."""
    spread, missing = stream.uniform(2) * [1.5, _MOST_MISSING] + [0.5, 0]
    slope, bend = stream.normal(2)
    normal_N, missing_N = stream.normal(rows), stream.uniform(rows) < missing
    counts_N = np.floor(np.exp(2 + spread * normal_N))
    weight = np.sqrt(_NUMERIC_SHARE / NUMERIC / (slope**2 + bend**2))
    # Both terms have deviation 1 and are uncorrelated.
    effect_N = weight * (slope * normal_N + bend * (normal_N**2 - 1) / np.sqrt(2))
    return pa.array(counts_N, mask=missing_N), np.where(missing_N, 0.0, effect_N)


def _categorical(stream: _Stream, rows: int) -> tuple[pa.Array, Numbers]:
    """Categories of which the r-th is about 1/r as frequent as the first, each with an inclination of its own."""
    size, missing = stream.uniform(2)
    count = round(_FEWEST_CATEGORIES * (_MOST_CATEGORIES / _FEWEST_CATEGORIES) ** size)
    effect_K = stream.normal(count) * np.sqrt((1 - _NUMERIC_SHARE) / CATEGORICAL)
    rank_N = np.minimum((count + 1) ** stream.uniform(rows), count).astype(np.int32) - 1
    missing_N = stream.uniform(rows) < missing * _MOST_MISSING
    names = pa.array([f"{rank * _HASH % 2**32:08x}" for rank in range(1, count + 1)])
    values = pa.DictionaryArray.from_arrays(pa.array(rank_N, mask=missing_N), names)
    return values, np.where(missing_N, 0.0, effect_K[rank_N])
