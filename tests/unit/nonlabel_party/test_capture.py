"""What a party records is what its attacks saw, within the room that it has, and through a step back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cutlayer.common.config import Capture, Choice, NonlabelPartySection
from cutlayer.common.errors import UserError
from cutlayer.common.job import Job
from cutlayer.common.models import build_bottom
from cutlayer.common.tables import InputSpec
from cutlayer.nonlabel_party.capture import Captured
from cutlayer.nonlabel_party.probe import FirstLayerProbe
from cutlayer.nonlabel_party.recorder import Recorder
from cutlayer.nonlabel_party.view import CleanPositive, StepView

ROWS, FEATURES, WIDTH = 40, 3, 4
JOB = Job.model_validate(
    {
        "name": "test",
        "epochs": 2,
        "batch_size": 8,
        "cut_layer": {"width": WIDTH},
        "parties": ["lab"],
        "knowledge": {"lab": {"clean_positive_gradient": True, "labelled_rows": 1}},
    }
)
KNOWN = {"r3": 1, "r4": 0}
IDS = np.array([f"r{row}" for row in range(ROWS)], dtype=object)
X_NF = torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(1))
BOTTOM = build_bottom(Choice(name="mlp", hidden=[5]), InputSpec(FEATURES), WIDTH, seed=3)
PROBE = FirstLayerProbe(BOTTOM)


def view(step: int) -> StepView:
    """As in training; steps that 3 divides bring no granted gradient."""
    rows = torch.randperm(ROWS, generator=torch.Generator().manual_seed(step))[: 8 if step % 5 else 3]
    z_Bd = BOTTOM(X_NF[rows])
    g_Bd = torch.randn(z_Bd.shape, generator=torch.Generator().manual_seed(100 + step)) * 1e-7
    return StepView(
        step=step,
        row_ids=tuple(IDS[rows.numpy()]),
        x_BF=X_NF[rows],
        z_Bd=z_Bd.detach(),
        g_Bd=g_Bd,
        clean_positive=CleanPositive(1, g_Bd[1] + 1) if step % 3 else None,
        granted=JOB.granted("lab").kinds(),
        pull_back=partial(PROBE.pull_back, z_Bd),
        known_labels=KNOWN,
    )


def recorder(folder: Path, said: list[str] | None = None, after: int = 0, **options: Any) -> Recorder:
    """A recorder as it begins, or goes on after step `after`."""
    made = Recorder(JOB, "lab", Capture(**options), 1, folder, (said if said is not None else []).append)
    made.go_back(after)
    made.begin(IDS, X_NF, KNOWN)
    return made


def record(folder: Path, steps: int = 7, **options: Any) -> Captured:
    made = recorder(folder, **options)
    for step in range(1, steps + 1):
        made.add(view(step))
    made.finish(steps)
    return Captured.open(folder)


def content(one: StepView, *, first: bool = True) -> list[Any]:
    """All that an attack can have of a view, tensors as bytes."""
    tensors: list[Tensor | None] = [one.x_BF, one.z_Bd, one.g_Bd, one.clean_positive_gradient("cut")]
    tensors += [one.gradient("first"), one.clean_positive_gradient("first")] if first else []
    row = one.clean_positive.row if one.clean_positive else None
    bits = [None if t is None else (tuple(t.shape), t.numpy().tobytes()) for t in tensors]
    return [one.step, one.row_ids, row, one.granted, dict(one.known_labels), *bits]


def steps_of(captured: Captured) -> list[int]:
    return [one.step for one in captured.views()]


def test_views_come_back_to_the_last_bit(tmp_path: Path) -> None:
    captured = record(tmp_path)
    assert [content(one) for one in captured.views()] == [content(view(step)) for step in range(1, 8)]
    assert (captured.party, captured.job, captured.threads) == ("lab", JOB, 1)
    assert (captured.last_step, captured.full_at) == (7, None)


def test_without_first_layer_and_features(tmp_path: Path) -> None:
    captured = record(tmp_path, first_layer=False, features=False)
    one = next(captured.views())
    assert one.x_BF.shape == (8, 0)
    assert content(one, first=False)[5] != content(view(1), first=False)[5]
    assert content(one, first=False)[6:] == content(view(1), first=False)[6:]
    with pytest.raises(ValueError, match="no bottom model"):
        one.gradient("first")


def test_only_the_steps_that_are_wanted(tmp_path: Path) -> None:
    assert steps_of(record(tmp_path, 9, every=2, from_step=2, to_step=7)) == [2, 4, 6]


def test_what_has_no_room_is_said_once_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.nonlabel_party.recorder._BYTES_PER_MB", 1500)
    said: list[str] = []
    made = recorder(tmp_path, said, max_mb=2)
    for step in range(1, 8):
        made.add(view(step))
    made.finish(7)
    captured = Captured.open(tmp_path)
    full_at = captured.full_at
    assert full_at is not None
    assert steps_of(captured) == list(range(1, full_at))
    assert len(said) == 1
    assert said[0].startswith(f"step {full_at}: the capture is full (2 MB)")
    assert sum(part.stat().st_size for part in captured.parts) < 2 * 1500 + 4000  # with the file's own fields


@pytest.mark.parametrize("after", [2, 3, 4])
@pytest.mark.parametrize("room", [2500, 5000, 9000])
def test_going_back_forgets_what_came_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, after: int
) -> None:
    """And fills at the same step, whether that was before or after."""
    monkeypatch.setattr("cutlayer.nonlabel_party.recorder._BYTES_PER_MB", room)
    whole, broken = recorder(tmp_path / "whole", max_mb=1), recorder(tmp_path / "broken", max_mb=1)
    for step in range(1, 10):
        whole.add(view(step))
    for step in range(1, 6):
        broken.add(view(step))
        if step != 1:
            broken.end_part(step)
    again = recorder(tmp_path / "broken", after=after, max_mb=1)  # a new process
    for step in range(after + 1, 10):
        again.add(view(step))
    for made in (whole, again):
        made.finish(9)
    one, two = Captured.open(tmp_path / "whole"), Captured.open(tmp_path / "broken")
    assert one.full_at == two.full_at
    assert [content(v) for v in two.views()] == [content(v) for v in one.views()]


def test_a_run_that_did_not_finish_can_be_looked_at(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    made.add(view(1))
    made.end_part(1)
    made.add(view(2))
    captured = Captured.open(tmp_path)
    assert captured.last_step is None
    assert steps_of(captured) == [1]


def test_what_is_no_capture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no capture; one is the folder <results>/<party>/capture"):
        Captured.open(tmp_path)
    record(tmp_path)
    header = json.loads((tmp_path / "capture.json").read_text())
    (tmp_path / "capture.json").write_text(json.dumps(header | {"schema": 99}))
    with pytest.raises(UserError, match="cannot be read: its schema is 99, expected 1"):
        Captured.open(tmp_path)


def cut_short(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-100])


def as_before_checksums(folder: Path) -> None:
    """Leave what older releases wrote."""
    header = json.loads((folder / "capture.json").read_text())
    del header["sha256"]
    (folder / "capture.json").write_text(json.dumps(header))


def in_two_parts(folder: Path) -> None:
    made = recorder(folder)
    for step in range(1, 8):
        made.add(view(step))
        if step == 3:
            made.end_part(step)
    made.finish(7)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(
    "damage", [cut_short, lambda part: part.write_bytes(b"")], ids=["part cut short", "empty part"]
)
def test_a_damaged_part_is_refused(tmp_path: Path, damage: Callable[[Path], object], older: bool) -> None:
    in_two_parts(tmp_path)
    if older:
        as_before_checksums(tmp_path)
    part = tmp_path / "part-000000004.arrow"
    damage(part)
    with pytest.raises(UserError, match=re.escape(f"{part}: this file of the capture is damaged (")):
        Captured.open(tmp_path)


def test_a_part_that_is_missing_is_noticed(tmp_path: Path) -> None:
    in_two_parts(tmp_path)
    (tmp_path / "part-000000004.arrow").unlink()
    with pytest.raises(UserError, match=r"part-000000004.arrow: this file .* is damaged \(.*No such file"):
        Captured.open(tmp_path)
    as_before_checksums(tmp_path)
    with pytest.raises(UserError, match="this capture cannot be read: it has 3 steps in its part-"):
        Captured.open(tmp_path)


def test_another_header_is_refused(tmp_path: Path) -> None:
    in_two_parts(tmp_path)
    for header, message in (("[]", "capture.json is damaged"), ('{"schema": 1, "sha256": 3}', "not iterable")):
        (tmp_path / "capture.json").write_text(header)
        with pytest.raises(UserError, match=f"this capture cannot be read: .*{message}"):
            Captured.open(tmp_path)


@pytest.mark.parametrize("file", ["part-000000001.arrow", "part-000000004.arrow", "rows.arrow"])
def test_a_bit_that_flips_is_noticed_wherever_it_is(tmp_path: Path, file: str) -> None:
    in_two_parts(tmp_path)
    whole = (tmp_path / file).read_bytes()
    for place in range(0, len(whole), 97):
        flipped = whole[place] ^ 1 << place % 8
        (tmp_path / file).write_bytes(whole[:place] + bytes([flipped]) + whole[place + 1 :])
        with pytest.raises(UserError, match=f"{file}: this file of the capture is damaged .its checksum is another"):
            Captured.open(tmp_path)


def test_a_capture_without_checksums_can_be_read_and_gone_on_with(tmp_path: Path) -> None:
    in_two_parts(tmp_path)
    as_before_checksums(tmp_path)
    expected = [content(view(step)) for step in range(1, 8)]
    assert [content(one) for one in Captured.open(tmp_path).views()] == expected
    again = recorder(tmp_path, after=3)
    for step in range(4, 8):
        again.add(view(step))
    again.finish(7)
    assert [content(one) for one in Captured.open(tmp_path).views()] == expected
    parts = {"part-000000001.arrow", "part-000000004.arrow"}
    assert json.loads((tmp_path / "capture.json").read_text())["sha256"].keys() == {"rows.arrow", *parts}


def test_a_damaged_part_ends_a_run_that_would_go_on(tmp_path: Path) -> None:
    in_two_parts(tmp_path)
    cut_short(tmp_path / "part-000000001.arrow")
    with pytest.raises(UserError, match=r"part-000000001.arrow: this file of the capture is damaged"):
        recorder(tmp_path, after=3)


def test_other_lengths_in_a_part_are_noticed(tmp_path: Path) -> None:
    """Where each value of a step begins and ends, as 32-bit numbers; the file is whole otherwise."""
    captured = record(tmp_path, steps=1)
    (part,) = tmp_path.glob("part-*.arrow")
    numbers = len(next(captured.views()).z_Bd.flatten())
    whole, lengths = part.read_bytes(), np.array([0, numbers], dtype="<i4").tobytes()
    assert lengths in whole
    part.write_bytes(whole.replace(lengths, np.array([0, 2**30], dtype="<i4").tobytes()))
    as_before_checksums(tmp_path)
    with pytest.raises(UserError, match=r"part-000000001.arrow: this file of the capture is damaged"):
        list(Captured.open(tmp_path).views())


@pytest.mark.parametrize(
    ("value", "expected"), [(True, Capture()), (False, None), ({"every": 3}, Capture(every=3)), (None, None)]
)
def test_capture_in_the_run_file(value: Any, expected: Capture | None) -> None:
    section = NonlabelPartySection.model_validate({"data": {"source": "wine"}, "capture": value})
    assert section.capture == expected
