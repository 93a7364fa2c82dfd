"""Words as numbers: a column of texts in a CSV or Parquet file.

Shape suffixes: N rows, W columns of words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from cutlayer.common.datasets.base import Dataset, datasets, share_of
from cutlayer.common.datasets.csv import Csv
from cutlayer.common.datasets.files import TableFile
from cutlayer.common.datasets.parquet import Parquet
from cutlayer.common.datasets.roles import Reference
from cutlayer.common.errors import DataError
from cutlayer.common.tables import Table

_PARQUET = (".parquet", ".pq")


@datasets.register("text")
@dataclass(kw_only=True)
class Text(Dataset):
    """Texts in a column of a CSV or Parquet file: a number for each word or group of words, in lower case.

    Words are those of scikit-learn: two letters, digits or underscores and more. The vocabulary is learned from the
    party's own texts alone, from all of its rows, those for testing included; `hashed` learns nothing. A party that has
    only the labels reads the file with `source: csv`.

    Args:
        path: the file; in a run file, relative to that file's folder.
        text: column of the texts.
        encoding: `multi_hot`: 1 where the word occurs; `tf_idf`: how often, over how many texts have it, rows of length
            1; `hashed`: tf-idf's counts without a vocabulary, in columns that words share, rows of length 1.
        size: columns at most: the most frequent words, the first in the alphabet of equals.
        part: which share of the columns, in alphabetical order, is the party's own: `1/3` is the first of three.
        id: column that names the rows; by default the one called `id`, or else rows are numbered from 0.
        label: column of the labels; at a party without labels, none.
        separator, header, quoting: of a CSV file, as of `source: csv`.
    """

    path: str
    text: Reference
    encoding: Literal["multi_hot", "tf_idf", "hashed"] = "multi_hot"
    size: int = 500
    part: str | None = None
    id: Reference | None = None
    label: Reference | None = None
    separator: str | None = None
    header: bool | None = None
    quoting: bool = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError("size is a number of columns from 1")

    def load(self) -> Table:
        listing = self._file().load()
        (column,) = listing.columns.columns
        texts_N = [text or "" for text in column.to_pylist()]
        names, numbers_NW, notes = self._encode(texts_N, listing.origin)
        own = share_of(self.part, len(names))
        columns = {names[i]: pa.array(numbers_NW[:, [i]].toarray().ravel(), pa.float64()) for i in own}
        notes = [note for note in listing.notes if "missing values" not in note] + notes
        if empty := sum(not text.strip() for text in texts_N):
            notes.append(f"{listing.origin}: {empty} of {len(texts_N)} texts are missing, and have no words")
        return Table(listing.ids, pa.table(columns), listing.label, listing.origin, notes=tuple(notes))

    def _file(self) -> TableFile:
        shared: dict[str, Any] = {"path": self.path, "id": self.id, "label": self.label}
        shared |= {"numeric": (), "categorical": (self.text,)}
        if Path(self.path).suffix.lower() in _PARQUET:
            return Parquet(**shared)
        return Csv(**shared, separator=self.separator, header=self.header, quoting=self.quoting)

    def _encode(self, texts_N: Sequence[str], origin: str) -> tuple[list[str], Any, list[str]]:
        """Names of the columns, sparse numbers (N, W), and notes."""
        from sklearn.feature_extraction import text as of  # noqa: PLC0415 - takes a second, and most parties have none

        if self.encoding == "hashed":
            hashed = of.HashingVectorizer(n_features=self.size)
            return [f"hash{i}" for i in range(self.size)], hashed.transform(texts_N).tocsc(), []
        words = _most_frequent(texts_N, of.CountVectorizer().build_analyzer(), self.size)
        if not words:
            raise DataError(f"{origin}: no text in column {self.text!r} has a word of two letters or digits")
        kind = of.CountVectorizer(vocabulary=words, binary=True)
        if self.encoding == "tf_idf":
            kind = of.TfidfVectorizer(vocabulary=words)
        few = (
            [f"{origin}: there are {len(words)} words, fewer than size: {self.size}"] if len(words) < self.size else []
        )
        return words, kind.fit_transform(texts_N).tocsc(), few


def _most_frequent(texts_N: Sequence[str], words_of: Callable[[str], list[str]], most: int) -> list[str]:
    """The words that occur most often, of equals the first in the alphabet; in alphabetical order."""
    counts = Counter(word for text in texts_N for word in words_of(text))
    return sorted(sorted(counts, key=lambda word: (-counts[word], word))[:most])
