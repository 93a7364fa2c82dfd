"""Who comes with another folder than the one that the run began with is refused; who has only crashed is not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from cutlayer.common.errors import SkewError
from cutlayer.label_party.answered import AnsweredActivations
from cutlayer.label_party.same_run import SameRun


def require(folder: Path, answered: int, saved: Sequence[int], durable: Sequence[int]) -> None:
    """A label party that has answered so many steps and saved `saved`, and a party that has saved `durable`."""
    with closing(AnsweredActivations(folder / "answered")) as memory:
        for step in range(1, answered + 1):
            memory.note(step, {"lab": bytes([step]) * 32})
        SameRun(memory, lambda: saved).require("lab", durable)


@pytest.mark.parametrize(
    ("answered", "saved", "durable"),
    [
        (0, (), ()),
        (0, (0,), ()),  # killed after the label party had saved, before it could itself
        (0, (0,), (0,)),
        (15, (0,), (0,)),
        (20, (20, 0), (0,)),  # killed after the label party had saved, before it could itself
        (20, (20, 0), (20, 0)),
        (40, (40, 20), (20, 0)),
        (47, (47, 40), (47, 40)),
        (15, (0,), (15, 0)),  # gave up waiting for a label party that was killed before the checkpoint of step 20
        (0, (0,), (15, 0)),  # a loss of power took what was noted after the label party had saved
        (15, (), ()),  # an earlier release, which saved no step 0
    ],
)
def test_P01_a_crash_never_makes_a_stranger(
    answered: int, saved: Sequence[int], durable: Sequence[int], tmp_path: Path
) -> None:
    require(tmp_path, answered, saved, durable)


@pytest.mark.parametrize(
    ("answered", "saved", "durable"), [(47, (40, 20), ()), (47, (40, 20), (30,)), (20, (20, 0), ()), (1, (0,), ())]
)
def test_P03_a_party_without_its_folder_is_refused(
    answered: int, saved: Sequence[int], durable: Sequence[int], tmp_path: Path
) -> None:
    words = f"'lab' comes without a checkpoint of this run, which has saved step {saved[0]}: start it on the host and"
    with pytest.raises(SkewError, match=words):
        require(tmp_path, answered, saved, durable)


@pytest.mark.parametrize(
    ("answered", "saved", "durable"),
    [(0, (), (40, 20)), (19, (), (40, 20)), (2, (2,), (40, 20)), (0, (0,), (40, 20)), (0, (), (20, 0)), (0, (), (0,))],
)
def test_P16_a_label_party_without_its_folder_is_refused(
    answered: int, saved: Sequence[int], durable: Sequence[int], tmp_path: Path
) -> None:
    words = f"'lab' has saved step {durable[0]} of this run, of which the label party's folder knows nothing: start"
    with pytest.raises(SkewError, match=words):
        require(tmp_path, answered, saved, durable)
