"""Images: pixel columns of a table, IDX files, folders of image files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image as Picture
from pyarrow import parquet

from cutlayer.common.config import Choice, DataSource
from cutlayer.common.datasets import load_table
from cutlayer.common.errors import DataError, PluginError
from cutlayer.common.models import build_bottom
from cutlayer.common.tables import Table, prepare

RED, GREEN = (255, 0, 0), (0, 128, 0)


def load(source: str, path: Path, **options: object) -> Table:
    return load_table(DataSource(source=source, path=str(path), **options))  # type: ignore[arg-type]


def idx(*shape: int, kind: int = 8) -> bytes:
    """An IDX file of the numbers 0, 1, ... ."""
    sizes = b"".join(size.to_bytes(4, "big") for size in shape)
    return bytes([0, 0, kind, len(shape)]) + sizes + bytes(i % 256 for i in range(int(np.prod(shape))))


@pytest.fixture
def pixels(tmp_path: Path) -> Path:
    """A CSV file of two rows of 2x3 pixels and a label."""
    path = tmp_path / "pixels.csv"
    path.write_text("p0,p1,p2,p3,p4,p5,kind\n1,2,3,4,5,6,a\n7,8,9,10,11,12,b\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """train.csv beside a folder with two PNG files."""
    (tmp_path / "jpeg").mkdir()
    Picture.new("RGB", (8, 6), RED).save(tmp_path / "jpeg" / "one.png")
    Picture.new("RGB", (3, 3), GREEN).save(tmp_path / "jpeg" / "two.png")
    path = tmp_path / "train.csv"
    path.write_text("image_name,patient,target\none,P7,1\ntwo,P8,0\n")
    return path


FOLDER = {"folder": "jpeg", "file": "image_name", "suffix": ".png", "size": [2, 4]}


def test_columns_of_a_csv_file_are_pixels(pixels: Path) -> None:
    table = load("csv", pixels, label="kind", image=[1, 2, 3])
    assert table.image == (1, 2, 3)
    features = prepare(table, np.arange(2), np.arange(2), standardise=True)
    x_NF = features.x_NF.double()
    assert features.spec.image == (1, 2, 3)
    assert abs(float(x_NF.mean())) < 1e-6  # scaled as a whole,
    assert float(x_NF[0].mean()) < -0.5  # not column by column
    model = build_bottom(Choice(name="cnn"), features.spec, 4, seed=0)
    assert model(features.x_NF).shape == (2, 4)


def test_columns_of_a_parquet_file_are_pixels(tmp_path: Path) -> None:
    parquet.write_table(pa.table({f"p{i}": [i, i + 1] for i in range(12)}), tmp_path / "pixels.parquet")
    assert load("parquet", tmp_path / "pixels.parquet", image=[3, 2, 2]).image == (3, 2, 2)


def test_an_image_that_does_not_fit(pixels: Path) -> None:
    with pytest.raises(DataError, match="every feature column is a pixel, and 'kind' hold no numbers; leave"):
        load("csv", pixels, image=[1, 2, 3])
    with pytest.raises(DataError, match=r"1 x 3 x 3 \(channels, height, width\) are 9 pixels, and there are 6 feature"):
        load("csv", pixels, drop=["kind"], image=[1, 3, 3])
    with pytest.raises(DataError, match="-1 x -2 x 3"):
        load("csv", pixels, drop=["kind"], image=[-1, -2, 3])
    with pytest.raises(PluginError, match="image"):
        load("csv", pixels, drop=["kind"], image=[2, 3])


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_idx_files_are_images_and_labels(tmp_path: Path, pack: type[bytes]) -> None:
    (tmp_path / "images").write_bytes(pack(idx(3, 2, 5)))
    (tmp_path / "labels").write_bytes(pack(idx(3)))
    images, labels = load("idx", tmp_path / "images"), load("idx", tmp_path / "labels")
    assert images.ids == labels.ids == ("0", "1", "2")
    assert images.image == (1, 2, 5)
    assert images.label is None
    assert [column[1].as_py() for column in images.columns.columns] == list(range(10, 20))
    assert labels.label is not None
    assert labels.label.to_pylist() == ["0", "1", "2"]
    assert labels.columns.num_columns == 0
    features = prepare(images, np.array([2, 0, 1]), np.array([0, 1]), standardise=False)
    assert features.x_NF[1].tolist() == list(range(10))


def test_idx_files_with_channels(tmp_path: Path) -> None:
    (tmp_path / "images").write_bytes(idx(2, 3, 4, 5))
    assert load("idx", tmp_path / "images").image == (3, 4, 5)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04", "is no IDX file"),
        (b"", "is no IDX file"),
        (idx(3, kind=13), "values of IDX type 13"),
        (idx(3, 2, 5)[:-1], "is cut off or has more than it says"),
        (idx(3, 2, 5)[:9], "is cut off or has more than it says"),
        (idx(0, 2, 5), "has no rows"),
        (idx(1, 1, 1, 1, 1), "rows of 4 dimensions"),
        (gzip.compress(idx(3), mtime=0)[:20], "cannot be read"),
    ],
)
def test_a_broken_idx_file(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(DataError, match=said):
        load("idx", tmp_path / "images")


def test_a_folder_of_images(folder: Path) -> None:
    table = load("images", folder, **FOLDER, label="target")
    assert table.ids == ("one", "two")
    assert table.image == (3, 2, 4)
    assert table.label is not None
    assert table.label.to_pylist() == ["1", "0"]
    first, second = ([column[row].as_py() for column in table.columns.columns] for row in (0, 1))
    assert first == [255] * 8 + [0] * 16  # channel by channel
    assert second == [0] * 8 + [128] * 8 + [0] * 8


def test_a_folder_of_grey_images_with_ids_of_their_own(folder: Path) -> None:
    table = load("images", folder, **FOLDER, colour="grey", id="patient")
    assert table.ids == ("P7", "P8")
    assert table.label is None
    assert table.image == (1, 2, 4)
    assert table.columns.columns[0][0].as_py() == 76  # ITU-R 601-2 luma of red


def test_images_keep_their_orientation(tmp_path: Path) -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    Picture.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text("file,x\na.png,1\n")
    table = load("images", tmp_path / "list.csv", file="file", size=[3, 4], colour="grey")
    assert [column[0].as_py() for column in table.columns.columns] == pixels.reshape(-1).tolist()


def test_images_that_cannot_be_read(folder: Path) -> None:
    folder.write_text("image_name,patient,target\none,P7,1\nthree,P9,0\n")
    with pytest.raises(
        DataError, match="1 of 2 image files are not there, the first of row 2; they are looked"
    ) as error:
        load("images", folder, **FOLDER)
    assert "three" not in str(error.value)
    (folder.parent / "jpeg" / "three.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="train.csv, row 2: its file is no image that can be read"):
        load("images", folder, **FOLDER)
    with pytest.raises(DataError, match="nowhere is no folder; `folder` is relative to the folder of train.csv"):
        load("images", folder, **{**FOLDER, "folder": "nowhere"})
    folder.write_text("image_name,patient,target\none,P7,1\n,P9,0\n")
    with pytest.raises(DataError, match="1 rows name no image file in column 'image_name'"):
        load("images", folder, **FOLDER, id="patient")


@pytest.mark.parametrize("options", [{"size": [0, 4]}, {"colour": "cmyk"}])
def test_wrong_options(folder: Path, options: dict[str, object]) -> None:
    with pytest.raises(PluginError):
        load("images", folder, **{**FOLDER, **options})
