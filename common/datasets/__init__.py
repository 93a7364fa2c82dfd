"""Where a party's rows come from: files, embedded data sets, made-up data, and the user's own sources."""

from __future__ import annotations

from cutlayer.common.config import DataSource
from cutlayer.common.datasets.base import Dataset, datasets
from cutlayer.common.datasets.click_log import ClickLog
from cutlayer.common.datasets.criteo import Criteo
from cutlayer.common.datasets.csv import Csv
from cutlayer.common.datasets.embedded import BreastCancer, Digits, Wine
from cutlayer.common.datasets.idx import Idx
from cutlayer.common.datasets.images import Images
from cutlayer.common.datasets.parquet import Parquet
from cutlayer.common.datasets.text import Text
from cutlayer.common.tables import Table

__all__ = [
    "BreastCancer",
    "ClickLog",
    "Criteo",
    "Csv",
    "Dataset",
    "Digits",
    "Idx",
    "Images",
    "Parquet",
    "Text",
    "Wine",
    "datasets",
    "load_table",
]


def load_table(source: DataSource) -> Table:
    """The rows of a party's `data` section.

    Raises:
        PluginError: there is no such source, or it has no such option.
        DataError: the data is wrong; the message says where and what to do.
    """
    return datasets.create(source.source, source.options).load()
