"""Checkpoints that are damaged or another party's: the one before is used, or it is said that none is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.hosts import Hosts, at_step, finish_well, hosts_of, with_timeouts

pytestmark = pytest.mark.slow


def cut_short(folder: Path) -> None:
    """Its tensors lack the end."""
    file = folder / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-50])


def without_manifest(folder: Path) -> None:
    """What says whose it is is missing."""
    (folder / "manifest.json").unlink()


def of_another_party(folder: Path) -> None:
    """It is a whole one, but not this party's."""
    bank = folder.parents[2] / "bank" / "checkpoints" / folder.name
    shutil.rmtree(folder)
    shutil.copytree(bank, folder)


def kill_all_after(hosts: Hosts) -> None:
    """Everybody dies when the faults of `hosts` have killed the label party."""
    hosts.start()
    hosts.finish("label_party")
    hosts.kill("lab", "bank")


@pytest.mark.parametrize(
    ("party", "damage", "words"),
    [
        ("label_party", cut_short, "is damaged"),
        ("bank", without_manifest, "is damaged"),
        ("lab", of_another_party, "is of another party"),
    ],
)
def test_P04_the_checkpoint_before_a_damaged_one_is_used(
    party: str, damage: Callable[[Path], None], words: str, tmp_path: Path, undisturbed: Path
) -> None:
    with hosts_of(tmp_path, with_timeouts(), at_step("label_party", 47)) as hosts:
        kill_all_after(hosts)
        newest = max((hosts.out / party / "checkpoints").glob("step-*"))
        damage(newest)
        hosts.start()
        finish_well(hosts, undisturbed)
        assert f"checkpoint {newest} {words}" in hosts.outputs([party])
        assert "from the checkpoint of step 20" in hosts.outputs(["label_party"])


def test_P04_where_all_of_the_label_partys_are_damaged_all_begin_anew(tmp_path: Path, undisturbed: Path) -> None:
    with hosts_of(tmp_path, with_timeouts(), at_step("label_party", 47)) as hosts:
        kill_all_after(hosts)
        for folder in (hosts.out / "label_party" / "checkpoints").glob("step-*"):
            cut_short(folder)
        hosts.start()
        finish_well(hosts, undisturbed)
        assert hosts.outputs(["label_party"]).count("is damaged") == 3
        assert "no checkpoint is held by all parties: all begin at step 1 again" in hosts.outputs(["label_party"])


def test_P04_who_has_only_damaged_ones_is_refused(tmp_path: Path) -> None:
    with hosts_of(tmp_path, with_timeouts(), at_step("label_party", 47)) as hosts:
        kill_all_after(hosts)
        for folder in (hosts.out / "lab" / "checkpoints").glob("step-*"):
            cut_short(folder)
        hosts.start("label_party", "lab")
        assert hosts.finish("lab") == {"lab": 2}
        assert hosts.outputs(["lab"]).count("is damaged") == 3
        assert "where that folder is lost or damaged, give another --out DIR at every party" in hosts.outputs(["lab"])
