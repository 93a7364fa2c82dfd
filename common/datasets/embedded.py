"""Small real data sets that come with scikit-learn; ids are row numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from cutlayer.common.datasets.base import SharedRows, datasets, row_numbers
from cutlayer.common.tables import Image, Table


class Embedded(SharedRows):
    """A data set of scikit-learn, with scikit-learn's coding of the labels."""

    origin: ClassVar[str]  # also its name in scikit-learn
    image_width: ClassVar[int | None] = None

    def load(self) -> Table:
        from sklearn import datasets as embedded  # noqa: PLC0415 - takes a second, and most parties have files

        bunch = getattr(embedded, f"load_{self.origin}")()  # with `data`, `target`, `feature_names`
        own = self.own_part(len(bunch.feature_names))
        columns = {str(bunch.feature_names[i]): pa.array(bunch.data[:, i], pa.float64()) for i in own}
        label = pa.array([str(value) for value in bunch.target], pa.string()) if self.wants_label else None
        return Table(row_numbers(len(bunch.target)), pa.table(columns), label, self.origin, image=self._image(own))

    def _image(self, own: range) -> Image | None:
        """One channel of whole pixel rows; None where the party's share cuts through one, or has none."""
        if self.image_width is None or not own or own.start % self.image_width or own.stop % self.image_width:
            return None
        return 1, len(own) // self.image_width, self.image_width


@datasets.register("breast_cancer")
@dataclass(kw_only=True)
class BreastCancer(Embedded):
    """Breast Cancer Wisconsin (diagnostic): 569 rows, 30 numeric columns; label 1 = benign (62.7 %), 0 = malignant."""

    origin = "breast_cancer"


@datasets.register("digits")
@dataclass(kw_only=True)
class Digits(Embedded):
    """Handwritten digits: 1,797 images of 8x8 pixels, labels 0 to 9. With `positive: 3` a binary task."""

    origin = "digits"
    image_width = 8


@datasets.register("wine")
@dataclass(kw_only=True)
class Wine(Embedded):
    """Wines of three cultivars: 178 rows, 13 numeric columns, labels 0 to 2."""

    origin = "wine"
