"""How long a label party that is away is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutlayer.common.displays import make_display
from cutlayer.common.errors import PeerError
from cutlayer.common.telemetry import Telemetry
from cutlayer.nonlabel_party import absence
from cutlayer.nonlabel_party.absence import Absence


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Absence]:
    """A label party that may be away for 0.2 s; a line that was open for 0.1 s counts as steady."""
    monkeypatch.setattr(absence, "_STEADY_S", 0.1)
    with Telemetry("lab", tmp_path, make_display(events=False)) as telemetry:
        yield Absence("host:1", 0.2, telemetry)


def test_a_row_of_attempts_that_break_at_once_is_one_absence(away: Absence) -> None:
    away.lost("at step 3", opened=time.monotonic())
    time.sleep(0.1)
    away.lost("at step 3", opened=time.monotonic())
    time.sleep(0.15)
    with pytest.raises(PeerError, match=r"the label party at host:1 was lost at step 3 and did not come back within"):
        away.lost("at step 3", opened=time.monotonic())


def test_P07_a_line_that_was_steady_in_between_begins_a_new_absence(away: Absence) -> None:
    for _ in range(5):
        opened = time.monotonic()
        time.sleep(0.15)
        away.lost("at step 3", opened)


def test_an_answer_ends_it(away: Absence) -> None:
    for _ in range(5):
        away.lost("at step 3")
        time.sleep(0.1)
        away.over()
