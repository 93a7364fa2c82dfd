"""The contract of a data source, and what built-in sources share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from cutlayer.common.errors import DataError
from cutlayer.common.registry import Registry
from cutlayer.common.tables import Table


class Dataset(ABC):
    """Gives a party its rows. Subclasses are dataclasses; their fields are the options of the run file.

    A source reads what its own party holds and nothing of another party.
    """

    @abstractmethod
    def load(self) -> Table:
        """The party's rows.

        Raises:
            DataError: the data is wrong; the message says where and what to do.
        """


datasets: Registry[Dataset] = Registry("data source", "cutlayer.datasets")


@dataclass(kw_only=True)
class SharedRows(Dataset):
    """Rows that every party can make by itself, of which a party takes its own columns.

    Args:
        columns: `labels`, `features`, or both.
        part: which share of the feature columns: `1/2` is the first of two; all by default.
    """

    columns: Literal["labels", "features", "both"] = "both"
    part: str | None = None

    @property
    def wants_label(self) -> bool:
        """Whether the party holds the labels."""
        return self.columns != "features"

    def own_part(self, count: int) -> range:
        """Which of all `count` feature columns are the party's own.

        Raises:
            DataError: `part` is no share of `count` columns.
        """
        share = share_of(self.part, count)
        return range(0) if self.columns == "labels" else share


def share_of(part: str | None, count: int) -> range:
    """Which of `count` feature columns the share `part` has: `1/2` the first half; None all.

    Raises:
        DataError: it is no share of `count` columns.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", part or "1/1")
    number, of = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= of <= count:
        raise DataError(
            f"part: {part!r}: expected i/n with i from 1 to n, and n at most the {count} feature columns, such as 1/2"
        )
    return range((number - 1) * count // of, number * count // of)


def row_numbers(count: int) -> tuple[str, ...]:
    """Ids for rows without any: 0, 1, ..."""
    return tuple(map(str, range(count)))
