"""Who comes with another folder than the one that the run began with is refused; who has only crashed is not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from cutlayer.common.errors import SkewError
from cutlayer.label_party.answered import AnsweredActivations
from cutlayer.label_party.same_run import SameRun

ONE, OTHER = b"1" * 16, b"2" * 16


def require(
    folder: Path,
    answered: int,
    saved: Sequence[int],
    durable: Sequence[int],
    own: bytes | None = None,
    named: bytes = b"",
) -> None:
    """A label party that has answered so many steps and saved `saved`, and a party that has saved `durable`.

    Their folders are of the runs `own` and `named`.
    """
    with closing(AnsweredActivations(folder / "answered")) as memory:
        for step in range(1, answered + 1):
            memory.note(step, {"lab": bytes([step]) * 32})
        SameRun(memory, lambda: saved, lambda: own).require("lab", durable, named)


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
    require(tmp_path, answered, saved, durable, ONE, ONE)


@pytest.mark.parametrize(
    "own",
    [
        None,  # all have begun with an earlier release, which named no run
        ONE,  # killed before it was told the name, or begun with an earlier release at this party alone
    ],
)
def test_P01_P20_a_folder_of_no_named_run_is_no_stranger(own: bytes | None, tmp_path: Path) -> None:
    require(tmp_path, 0, (0,), (), own)
    require(tmp_path, 15, (0,), (0,), own)


@pytest.mark.parametrize(
    ("answered", "saved", "durable"),
    [(0, (), ()), (0, (0,), ()), (0, (0,), (0,)), (15, (0,), (0,)), (15, (0,), (15, 0)), (40, (40, 20), (40, 20))],
)
def test_P16_a_folder_of_another_run_is_refused(
    answered: int, saved: Sequence[int], durable: Sequence[int], tmp_path: Path
) -> None:
    words = "'lab' comes with a folder of another run of this job: it is of run 32323232, that of the label party is of"
    with pytest.raises(SkewError, match=rf"{words} run 31313131; start both with the --out DIR with which they began"):
        require(tmp_path, answered, saved, durable, ONE, OTHER)


@pytest.mark.parametrize(
    ("saved", "durable", "what"),
    [((), (), "begun"), ((), (0,), "saved step 0 of"), ((20, 0), (20, 0), "saved step 20 of")],
)
def test_P16_a_label_party_that_has_named_no_run_refuses_a_party_that_was_told_one(
    saved: Sequence[int], durable: Sequence[int], what: str, tmp_path: Path
) -> None:
    words = f"'lab' has {what} this run, of which the label party's folder knows nothing: start the label party with"
    with pytest.raises(SkewError, match=words):
        require(tmp_path, 20 if saved else 0, saved, durable, None, ONE)


@pytest.mark.parametrize(
    ("answered", "saved", "durable"), [(47, (40, 20), ()), (47, (40, 20), (30,)), (20, (20, 0), ()), (1, (0,), ())]
)
def test_P03_a_party_without_its_folder_is_refused(
    answered: int, saved: Sequence[int], durable: Sequence[int], tmp_path: Path
) -> None:
    words = f"'lab' comes without a checkpoint of this run, which has saved step {saved[0]}: start it on the host and"
    with pytest.raises(SkewError, match=words):
        require(tmp_path, answered, saved, durable, ONE, ONE)


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
