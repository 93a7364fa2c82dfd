"""Training over the wire is the same as training the joint model in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.one_process import train
from support.runs import BREAST_CANCER, Run, changed, cutlayer, with_parties, write

SECRET = "orders the rows"

SUM = changed(with_parties(BREAST_CANCER, ["lab", "clinic"]), {"label_party.optimizer": {"name": "sgd", "lr": 0.1}})


def _digits() -> Run:
    """Three parties and the label party hold two pixel rows each; other widths, ten classes, convolutions."""
    run = with_parties(
        changed(
            BREAST_CANCER,
            {
                "job.task": "multiclass",
                "job.classes": 10,
                "job.epochs": 1,
                "job.cut_layer": {"width": 6, "aggregation": "concat", "widths": {"b": 4, "label_party": 3}},
                "nonlabel_parties.lab.data": {"source": "digits", "columns": "features"},
                "nonlabel_parties.lab.bottom_model": {"name": "cnn", "channels": [4]},
                "label_party.data": {"source": "digits", "columns": "both", "part": "4/4"},
                "label_party.bottom_model": {"name": "cnn", "channels": [3]},
            },
        ),
        ["a", "b", "c"],
    )
    parts = {f"nonlabel_parties.{name}.data.part": f"{number}/4" for number, name in enumerate("abc", start=1)}
    return changed(run, parts)


@pytest.mark.parametrize("run", [SUM, _digits()], ids=["sum_binary", "concat_multiclass"])
def test_same_weights_as_one_process(tmp_path: Path, run: Run) -> None:
    path = write(tmp_path, run)
    joint = train(path, SECRET)
    done = cutlayer("run", path, "--out", tmp_path / "out", CUTLAYER_ID_SECRET=SECRET)
    assert done.returncode == 0, done.stdout + done.stderr

    label_party = {f"top.{name}": tensor for name, tensor in joint.top.state_dict().items()}
    if "label_party" in joint.bottoms:
        bottom = joint.bottoms.pop("label_party").state_dict()
        label_party |= {f"bottom.{name}": tensor for name, tensor in bottom.items()}
    expected = {"label_party": label_party} | {name: model.state_dict() for name, model in joint.bottoms.items()}
    for party, weights in expected.items():
        found = load_file(tmp_path / "out" / party / "model" / "model.safetensors")
        assert found.keys() == weights.keys()
        torch.testing.assert_close(found, dict(weights), rtol=0, atol=1e-6)
