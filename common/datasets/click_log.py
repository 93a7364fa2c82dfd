"""A made-up click log with as many numeric and categorical columns as Criteo's, and as uneven ones.

Every column comes from streams of its own, so that parties who make only their own columns, on different hosts,
hold the very rows that a party who makes all of them holds.

Shape suffixes: N rows, K categories.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
        rows: number of rows; the columns of a shorter log are the beginning of those of a longer one.
        positives: share of clicks.
        seed: another seed, another log; all parties use the same.
    """

    rows: int = 100_000
    positives: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError("rows is a number above 0")
        if not 0 < self.positives < 1:
            raise ValueError("positives lies between 0 and 1")

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
        make = _numeric if position < NUMERIC else _categorical
        return make(_Streams(self.seed, COLUMNS[position]), self.rows)

    def _label(self, inclination_N: Numbers) -> pa.Array:
        u_N = _Streams(self.seed, "label").uniform("noise", self.rows)
        total_N = _SIGNAL * inclination_N + np.log(u_N / (1 - u_N))
        y_N = np.zeros(self.rows, dtype=np.int64)
        y_N[np.argsort(-total_N, kind="stable")[: round(self.positives * self.rows)]] = 1
        return pa.array(y_N).cast(pa.string())


@dataclass(frozen=True)
class _Streams:
    """The random numbers of one column, a stream for each purpose."""

    seed: int
    name: str

    def uniform(self, purpose: str, count: int) -> Numbers:
        """Numbers in (0, 1)."""
        noise = Noise(public_key("click_log", self.seed, self.name, purpose))
        numbers: Numbers = noise.uniform((count,)).numpy()
        return numbers

    def normal(self, purpose: str, count: int) -> Numbers:
        """Standard normal numbers, of double precision."""
        from scipy.special import ndtri  # noqa: PLC0415 - not for parties that read files

        numbers: Numbers = ndtri(self.uniform(purpose, count))
        return numbers


def _numeric(streams: _Streams, rows: int) -> tuple[pa.Array, Numbers]:
    """Counts of a log-normal law; the inclination rises, falls or bends with their logarithm."""
    spread, missing = streams.uniform("law", 2) * [1.5, _MOST_MISSING] + [0.5, 0]
    slope, bend = streams.normal("effect", 2)
    normal_N, missing_N = streams.normal("values", rows), streams.uniform("missing", rows) < missing
    counts_N = np.floor(np.exp(2 + spread * normal_N))
    weight = np.sqrt(_NUMERIC_SHARE / NUMERIC / (slope**2 + bend**2))
    # Both terms have deviation 1 and are uncorrelated.
    effect_N = weight * (slope * normal_N + bend * (normal_N**2 - 1) / np.sqrt(2))
    return pa.array(counts_N, mask=missing_N), np.where(missing_N, 0.0, effect_N)


def _categorical(streams: _Streams, rows: int) -> tuple[pa.Array, Numbers]:
    """Categories of which the r-th is about 1/r as frequent as the first, each with an inclination of its own."""
    size, missing = streams.uniform("law", 2)
    count = round(_FEWEST_CATEGORIES * (_MOST_CATEGORIES / _FEWEST_CATEGORIES) ** size)
    effect_K = streams.normal("effect", count) * np.sqrt((1 - _NUMERIC_SHARE) / CATEGORICAL)
    rank_N = np.minimum((count + 1) ** streams.uniform("values", rows), count).astype(np.int32) - 1
    missing_N = streams.uniform("missing", rows) < missing * _MOST_MISSING
    names = pa.array([f"{rank * _HASH % 2**32:08x}" for rank in range(1, count + 1)])
    values = pa.DictionaryArray.from_arrays(pa.array(rank_N, mask=missing_N), names)
    return values, np.where(missing_N, 0.0, effect_K[rank_N])
