"""What a newer version has saved is neither misread nor removed: this one names the version that can read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cutlayer import __version__
from cutlayer.common.checkpoints import SCHEMA, CheckpointOwner, CheckpointStore, _sealed, _unsealed
from cutlayer.common.errors import CheckpointError
from cutlayer.common.run_state import RunState

JOB = bytes(32)


def test_P20_a_checkpoint_of_a_newer_version_is_refused_and_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, CheckpointOwner("lab", "job"), 3, [].append)
    for step in (1, 2):
        store.save(step, {"weight": torch.ones(2)}, {})
    manifest = tmp_path / "checkpoints" / "step-000000002" / "manifest.json"
    content = _unsealed(manifest.read_bytes())
    assert content["cutlayer"] == __version__
    assert store.steps() == (2, 1)
    newer = {"schema": SCHEMA + 1, "cutlayer": "99.1", "whatever": "comes then"}
    manifest.write_bytes(_sealed(newer))
    words = rf"step-000000002 was written by cutlayer 99.1 in a form that {__version__} cannot read; go on with that"
    for use in (store.steps, lambda: store.load(2)):
        with pytest.raises(CheckpointError, match=words):
            use()
    assert _unsealed(manifest.read_bytes()) == newer


def test_P20_a_folder_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    state = RunState(tmp_path, JOB)
    state.begin()
    file = tmp_path / "state.json"
    content = json.loads(file.read_text())
    assert (content["schema"], content["cutlayer"]) == (2, __version__)
    file.write_text(json.dumps({"schema": 3, "cutlayer": "99.1", "whatever": "comes then"}))
    with pytest.raises(CheckpointError, match=rf"holds a run of cutlayer 99.1, in a form that {__version__} cannot"):
        RunState(tmp_path, JOB)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"schema": 1}', b'{"schema": "x"}', b"\xff"])
def test_P04_a_state_that_cannot_be_read_says_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"state.json: cannot be read; give another --out DIR"):
        RunState(tmp_path, JOB)


def test_P20_the_state_of_the_first_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"job": JOB.hex(), "rows": "00", "finished": True, "schema": 1}))
    assert RunState(tmp_path, JOB).finished
