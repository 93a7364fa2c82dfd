"""A folder of images, and the CSV file that lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from PIL import Image as Picture

from cutlayer.common.datasets.base import Dataset, datasets
from cutlayer.common.datasets.csv import Csv
from cutlayer.common.datasets.roles import Reference
from cutlayer.common.errors import DataError
from cutlayer.common.tables import Table

_MODES: dict[str, tuple[str, int]] = {"grey": ("L", 1), "rgb": ("RGB", 3)}  # Pillow's name, channels

Pixels = npt.NDArray[np.uint8]


@datasets.register("images")
@dataclass(kw_only=True)
class Images(Dataset):
    """Images in a folder, listed in a CSV file with a row for each; scaled to one size (bicubic).

    A party that has only the labels reads the CSV file alone, with `source: csv`.

    Args:
        path: the CSV file; in a run file, relative to that file's folder.
        file: column with the names of the image files.
        size: height and width in pixels.
        colour: `rgb` or `grey`.
        folder: folder of the images, relative to that of the CSV file.
        suffix: what the column leaves out at the end of the names, such as `.jpg`.
        id: column that names the rows; by default `file`.
        label: column of the labels; at a party without labels, none.
    """

    path: str
    file: Reference
    size: tuple[int, int]
    colour: Literal["rgb", "grey"] = "rgb"
    folder: str = "."
    suffix: str = ""
    id: Reference | None = None
    label: Reference | None = None

    def __post_init__(self) -> None:
        if min(self.size) < 1:
            raise ValueError("size is height and width in pixels, such as [84, 84]")

    def load(self) -> Table:
        listing, files = self._listing()
        folder = Path(self.path).parent / self.folder
        if not folder.is_dir():
            raise DataError(f"{folder} is no folder; `folder` is relative to the folder of {listing.origin}")
        mode, channels = _MODES[self.colour]
        pixels_NP = self._read_all([folder / f"{name}{self.suffix}" for name in files], mode, listing.origin)
        columns = {f"pixel{i}": pa.array(np.ascontiguousarray(pixels_NP[:, i])) for i in range(pixels_NP.shape[1])}
        image = (channels, *self.size)
        return Table(listing.ids, pa.table(columns), listing.label, listing.origin, image, listing.notes)

    def _listing(self) -> tuple[Table, Sequence[str]]:
        """The rows of the CSV file, without features, and the names of their files."""
        if self.id is None or self.id == self.file:
            listing = Csv(path=self.path, id=self.file, label=self.label, numeric=(), categorical=()).load()
            return listing, listing.ids
        listing = Csv(path=self.path, id=self.id, label=self.label, numeric=(), categorical=(self.file,)).load()
        (names,) = listing.columns.columns
        if names.null_count:
            raise DataError(f"{listing.origin}: {names.null_count} rows name no image file in column {self.file!r}")
        return listing, names.to_pylist()

    def _read_all(self, files: Sequence[Path], mode: str, origin: str) -> Pixels:
        """Pixels of each file, channel by channel, row by row, (N, P)."""
        missing = [row for row, file in enumerate(files, start=1) if not file.is_file()]
        if missing:
            raise DataError(
                f"{origin}: {len(missing)} of {len(files)} image files are not there, the first of row {missing[0]}; "
                f"they are looked for as {files[0].parent}/<{self.file}>{self.suffix}"
            )
        _, channels = _MODES[self.colour]
        pixels_NP = np.empty((len(files), channels * self.size[0] * self.size[1]), np.uint8)
        for row, file in enumerate(files):
            try:
                pixels_NP[row] = _pixels(file, mode, self.size)
            except (OSError, ValueError, Picture.DecompressionBombError) as error:
                raise DataError(f"{origin}, row {row + 1}: its file is no image that can be read") from error
        return pixels_NP


def _pixels(file: Path, mode: str, size: tuple[int, int]) -> Pixels:
    """The image in `mode` at `size` (height, width), flattened channel by channel."""
    height, width = size
    with Picture.open(file) as picture:
        picture.draft(mode, (2 * width, 2 * height))  # a large JPEG is decoded at a fraction of its size
        scaled = picture.convert(mode).resize((width, height), Picture.Resampling.BICUBIC)
    pixels: Pixels = np.asarray(scaled, np.uint8).reshape(height, width, -1)
    return pixels.transpose(2, 0, 1).reshape(-1)
