"""What the label party keeps for the report: how much, of which steps, and the same after going back."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cutlayer.common.schedule import Schedule
from cutlayer.label_party.samples import FIGURES_FILE, GRADIENTS_FILE, Samples

LONG = Schedule(0, 5000, 0.2, 4, 2)  # 1000 training and 250 evaluation steps an epoch
SHORT = Schedule(0, 50, 0.2, 10, 2)  # 4 and 1


def gradients(number: int, rows: int, width: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, exact and perturbed gradient of a step."""
    generator = torch.Generator().manual_seed(number)
    g_Bd = torch.randn(rows, width, generator=generator)
    return torch.arange(rows) % 2, g_Bd, g_Bd + 2


def add(samples: Samples, schedule: Schedule, steps: range, width: int = 3, party: str = "lab") -> None:
    for step in map(schedule.at, steps):
        if step.kind == "train":
            y_B, g_Bd, perturbed_Bd = gradients(step.number, len(step.rows), width)
            shown = {"exact": g_Bd, "perturbed": perturbed_Bd}
            samples.add(step, party, y_B, shown, {"sum_kl": step.number / 2})


def test_batches_are_spread_over_the_training_steps(tmp_path: Path) -> None:
    samples = Samples(LONG, 3, 1)
    add(samples, LONG, range(1, LONG.steps + 1))
    samples.write(tmp_path)
    found = load_file(tmp_path / GRADIENTS_FILE)
    assert found["lab/step"].unique().tolist() == [1, 1251, 2250]  # the first, the first of epoch 2, the last
    y_B, g_Bd, perturbed_Bd = gradients(1251, 4)
    here = found["lab/step"] == 1251
    assert found["lab/label"][here].equal(y_B)
    assert found["lab/exact"][here].equal(g_Bd)
    assert found["lab/perturbed"][here].equal(perturbed_Bd)


def test_figures_of_at_most_a_thousand_steps(tmp_path: Path) -> None:
    samples = Samples(LONG, 1, 1)
    add(samples, LONG, range(1, LONG.steps + 1))
    samples.write(tmp_path)
    table = pq.read_table(tmp_path / FIGURES_FILE)
    assert table.num_rows == 3 * 1000
    assert set(table["party"].to_pylist()) == {"lab"}
    by_figure = {row["figure"]: row["value"] for row in table.to_pylist() if row["step"] == 1}
    _, g_Bd, _ = gradients(1, 4)
    assert by_figure == {
        "sum_kl": 0.5,
        "noise_power": pytest.approx(12.0),  # 2 in each of 3 directions
        "gradient_power": float(g_Bd.double().square().sum(dim=1).mean()),
    }


def test_every_step_of_a_short_run() -> None:
    samples = Samples(SHORT, 100, 1)
    add(samples, SHORT, range(1, SHORT.steps + 1))
    assert samples.tensors()["gradients/lab/step"].unique().tolist() == [1, 2, 3, 4, 6, 7, 8, 9]


def test_room_is_bounded_whatever_the_width_and_the_parties() -> None:
    wide = Schedule(0, 2000, 0.0, 1000, 2)
    samples = Samples(wide, 16, 2)
    for party in ("lab", "bank"):
        add(samples, wide, range(1, wide.steps + 1), width=5000, party=party)
    kept = samples.tensors()
    numbers = sum(tensor.numel() for name, tensor in kept.items() if name.endswith(("exact", "perturbed")))
    assert 0 < numbers <= 1 << 20
    narrow = Samples(wide, 16, 1)
    add(narrow, wide, range(1, 2), width=1)
    assert len(narrow.tensors()["gradients/lab/step"]) == 128


def test_P08_restored_samples_go_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole, first, second = (Samples(SHORT, 4, 1) for _ in range(3))
    add(whole, SHORT, range(1, SHORT.steps + 1))
    add(first, SHORT, range(1, 7))
    saved = {name: tensor.clone() for name, tensor in first.tensors().items()}
    add(second, SHORT, range(1, 9))  # further than what was saved
    second.restore(saved)
    add(second, SHORT, range(7, SHORT.steps + 1))
    for samples, name in ((whole, "whole"), (second, "second")):
        (tmp_path / name).mkdir()
        samples.write(tmp_path / name)
    for file in (GRADIENTS_FILE, FIGURES_FILE):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_nothing_is_kept_where_it_is_switched_off(tmp_path: Path) -> None:
    samples = Samples(SHORT, 0, 1)
    add(samples, SHORT, range(1, SHORT.steps + 1))
    assert samples.tensors() == {}
    samples.write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_the_owner_can_read_exact_gradients(tmp_path: Path) -> None:
    samples = Samples(SHORT, 1, 1)
    add(samples, SHORT, range(1, 2))
    samples.write(tmp_path)
    assert (tmp_path / GRADIENTS_FILE).stat().st_mode & 0o777 == 0o600
