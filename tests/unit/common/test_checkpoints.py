"""Checkpoints: whole or absent whatever happens to their files, nobody else's, and the newest few."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cutlayer.common.checkpoints import CheckpointOwner, CheckpointStore, optimizer_tensors, restore_optimizer
from cutlayer.common.errors import CheckpointError

LAB = CheckpointOwner("lab", "job")
RECORD = {"text": "word", "number": 0.1, "none": None, "list": [1, 2]}


def tensors(step: int, rows: int = 3) -> dict[str, Tensor]:
    return {"a": torch.full((rows, 5), step / 7), "empty": torch.zeros(0), "one": torch.tensor(step)}


def store(
    folder: Path, said: list[str] | None = None, identity: CheckpointOwner = LAB, keep: int = 3
) -> CheckpointStore:
    return CheckpointStore(folder, identity, keep, [].append if said is None else said.append)


def files(folder: Path, step: int) -> list[Path]:
    return sorted((folder / "checkpoints" / f"step-{step:09d}").iterdir())


def test_what_was_saved_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    store(tmp_path).save(5, tensors(5), RECORD)
    loaded = store(tmp_path).load(5)
    assert loaded.record == RECORD
    assert loaded.tensors.keys() == tensors(5).keys()
    assert all(torch.equal(loaded.tensors[name], tensor) for name, tensor in tensors(5).items())


def test_the_newest_are_kept_and_come_first(tmp_path: Path) -> None:
    keeper = store(tmp_path, keep=2)
    for step in (10, 20, 30):
        keeper.save(step, tensors(step), {})
    assert keeper.steps() == (30, 20)
    keeper.drop_after(20)
    assert keeper.steps() == (20,)
    with pytest.raises(CheckpointError, match="step 30 is missing"):
        keeper.load(30)


@pytest.mark.parametrize("place", [0, 1], ids=["manifest", "state"])
def test_P04_a_file_cut_or_missing_or_with_a_flipped_bit_is_not_used(tmp_path: Path, place: int) -> None:
    keeper = store(tmp_path)
    keeper.save(1, tensors(1), RECORD)
    keeper.save(2, tensors(2, rows=1000), RECORD | {"long": ["word"] * 2000})
    file = files(tmp_path, 2)[place]
    whole = file.read_bytes()
    assert len(whole) > 8192
    cuts = [whole[:length] for length in (*range(0, len(whole), 4096), len(whole) - 1)]
    flips = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(7, len(whole), 4096)]
    for damaged in (*cuts, *flips):
        file.write_bytes(damaged)
        said: list[str] = []
        assert store(tmp_path, said).steps() == (1,)
        assert len(said) == 1
        assert "step-000000002 is damaged" in said[0]
    file.unlink()
    assert store(tmp_path).steps() == (1,)
    file.write_bytes(whole)
    assert store(tmp_path).steps() == (2, 1)


def test_P04_every_state_that_a_killed_writer_leaves_is_read(tmp_path: Path) -> None:
    store(tmp_path / "before").save(1, tensors(1), RECORD)
    store(tmp_path / "whole").save(2, tensors(2), RECORD)
    manifest, state = (file.read_bytes() for file in files(tmp_path / "whole", 2))
    written = [(b"", None), *((state[:n], None) for n in range(0, len(state), 64))]
    written += [(state, manifest[:n]) for n in (*range(0, len(manifest), 64), len(manifest))]
    for number, (of_state, of_manifest) in enumerate(written):
        folder = tmp_path / f"killed-{number}"
        store(folder).save(1, tensors(1), RECORD)
        half = folder / "checkpoints" / ".step-000000002.99"
        half.mkdir()
        (half / "state.safetensors").write_bytes(of_state)
        if of_manifest is not None:
            (half / "manifest.json").write_bytes(of_manifest)
        keeper = store(folder)
        assert keeper.steps() == (1,)
        keeper.save(2, tensors(2), RECORD)
        assert keeper.steps() == (2, 1)
        keeper.drop_after(1)
        assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-000000001"]


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (CheckpointOwner("bank", "job"), "party"),
        (CheckpointOwner("lab", "other"), "job"),
        (CheckpointOwner("lab", "job", "00"), "rows"),
    ],
)
def test_a_foreign_checkpoint_is_not_used(tmp_path: Path, other: CheckpointOwner, what: str) -> None:
    store(tmp_path).save(1, tensors(1), {})
    said: list[str] = []
    assert store(tmp_path, said, other).steps() == ()
    assert f"is of another {what} and is not used" in said[0]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = store(tmp_path)
    keeper.save(1, tensors(1), {})

    def full(path: Path, data: bytes) -> None:
        path.write_bytes(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cutlayer.common.checkpoints.write_synced", full)
    with pytest.raises(OSError, match="No space left"):
        keeper.save(2, tensors(2), {})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000001"]


@pytest.mark.parametrize("kind", ["adam", "adagrad", "momentum", "sgd"])
def test_an_optimizer_goes_on_with_the_same_bits(tmp_path: Path, kind: str) -> None:
    def optimizer(weight: Tensor) -> torch.optim.Optimizer:
        if kind == "adam":
            return torch.optim.Adam([weight], lr=0.1)
        if kind == "adagrad":
            return torch.optim.Adagrad([weight], lr=0.1)
        return torch.optim.SGD([weight], lr=0.1, momentum=0.9 if kind == "momentum" else 0.0)

    def train(weight: Tensor, by: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            weight.grad = torch.sin(weight.detach() * step)
            by.step()

    one = torch.arange(6.0).requires_grad_()
    by = optimizer(one)
    train(one, by, range(1, 8))
    store(tmp_path).save(7, optimizer_tensors(by), {})
    other = one.detach().clone().requires_grad_()
    resumed = optimizer(other)
    restore_optimizer(resumed, store(tmp_path).load(7).tensors)
    train(one, by, range(8, 15))
    train(other, resumed, range(8, 15))
    assert torch.equal(one, other)
