"""The label party's part in finding the rows that all parties hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutlayer.common.alignment import IdForm, OwnIds, common_rows, explain_no_match, rows_digest
from cutlayer.common.errors import AlignmentError


@dataclass(frozen=True)
class PartyIds:
    """A party's sorted id digests, how its ids are written, and of which steps it holds a checkpoint."""

    digests: npt.NDArray[np.void]
    form: IdForm
    durable_steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class CommonRows:
    """The rows that all parties hold.

    Attributes:
        order: aligned row i is row order[i] of the label party's table.
        held: party -> for each of its sorted digests, whether all hold it.
        digest: digest of the ordered rows.
    """

    order: npt.NDArray[np.int64]
    held: Mapping[str, npt.NDArray[np.bool_]]
    digest: bytes

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.order)


def find_common_rows(own: OwnIds, others: Mapping[str, PartyIds]) -> CommonRows:
    """Intersect the parties' digests; the order is that of the digests, which no party chooses."""
    masks = common_rows([own.digests, *(ids.digests for ids in others.values())])
    return CommonRows(
        order=own.order[masks[0]],
        held=dict(zip(others, masks[1:], strict=True)),
        digest=rows_digest(own.digests[masks[0]]),
    )


def require_rows(rows: CommonRows, own: OwnIds, others: Mapping[str, PartyIds], origin: str) -> str:
    """How many rows matched and were dropped, in words.

    Raises:
        AlignmentError: no row matched; the message has the likely causes.
    """
    if rows.count == 0:
        forms = [ids.form for ids in others.values() if ids.form != own.form]
        counts = [len(ids.digests) for ids in others.values()]
        raise AlignmentError(
            explain_no_match(own.form, forms[0] if forms else own.form, len(own.digests), counts, origin)
        )
    dropped = [f"{len(own.digests) - rows.count} of {origin}"]
    dropped += [f"{len(ids.digests) - rows.count} of {party}" for party, ids in others.items()]
    return f"{rows.count} rows matched; dropped because not all hold them: {', '.join(dropped)}"
