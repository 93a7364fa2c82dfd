"""Lines that break in every way at every message: the same bits as without, or a clear end of both parties.

    CUTLAYER_NETWORKS=200 scripts/test tests/faults/test_scenarios.py -k random -s --timeout 3600

tries 200 scenarios by chance; CUTLAYER_NETWORKS_SEED repeats a choice.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support import kits
from support.runs import BREAST_CANCER, Run, changed, with_parties
from support.scenarios import (
    Scenario,
    by_chance,
    damage,
    delay,
    half_open,
    jitter,
    play,
    require,
    reset,
    slow,
    stall,
    strand,
)
from support.threads import Outcome, train

TIMEOUTS = {"reconnect_s": 20, "stall_s": 10, "keepalive_s": 1, "connect_s": 20, "goodbye_s": 1}
STEPS = 20
RANDOM = int(os.environ.get("CUTLAYER_NETWORKS", "2"))


def run_of(scenario: Scenario, folder: Path) -> Run:
    """The run file of a scenario: the same job whatever the line is like."""
    run = with_parties(BREAST_CANCER, list(scenario.parties)) if len(scenario.parties) > 1 else BREAST_CANCER
    timeouts = TIMEOUTS | dict(scenario.timeouts)
    sections = ["label_party", *(f"nonlabel_parties.{name}" for name in scenario.parties)]
    run = changed(run, {f"{section}.timeouts": timeouts for section in sections})
    return changed(run, {"label_party.defense": "iso", "label_party.noise_secret": str(folder / "noise")})


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates, the secret of the noise, and what runs leave without a fault, by the number of parties."""
    folder = tmp_path_factory.mktemp("ground")
    (folder / "noise").write_bytes(bytes(32))
    kits.make(folder / "certs", parties=("label_party", "lab", "bank"))
    return folder


@pytest.fixture(scope="module")
def undisturbed(ground: Path) -> dict[int, Outcome]:
    """The results without a fault, by the number of non-label parties."""
    kinds = [Scenario(("hello", 0), (), parties=parties) for parties in (("lab",), ("lab", "bank"))]
    return {len(one.parties): train(ground / str(one), run_of(one, ground)).require_success() for one in kinds}


def judge(scenario: Scenario, folder: Path, ground: Path, undisturbed: dict[int, Outcome]) -> float:
    """Play it, look at what came of it; returns how long it took."""
    run = run_of(scenario, ground)
    played = play(folder, scenario=scenario, run=kits.with_tls(run, ground / "certs") if scenario.tls else run)
    require(scenario, played, undisturbed[len(scenario.parties)])
    return played.seconds


SCENARIOS = [
    Scenario(("activation", 5), (reset(),), tls=True, parties=("lab", "bank")),
    Scenario(("answer", 5), (stall(3), reset())),
    Scenario(("welcome", 0), (half_open("up"), delay(0.1, 0.5))),
    Scenario(("activation", 9), (strand(1.0),)),
    Scenario(("ids", 0), (slow(32 * 1024, 2.0), jitter(0.2, 1.0), reset()), tls=True),
    Scenario(("answer", 3), (damage("down", "double"),), expect="either"),
]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_P07_P02(scenario: Scenario, tmp_path: Path, ground: Path, undisturbed: dict[int, Outcome]) -> None:
    judge(scenario, tmp_path, ground, undisturbed)


@pytest.mark.slow
def test_P07_P02_random(tmp_path: Path, ground: Path, undisturbed: dict[int, Outcome]) -> None:
    seed = os.environ.get("CUTLAYER_NETWORKS_SEED", str(random.SystemRandom().randrange(10**6)))
    print(f"CUTLAYER_NETWORKS_SEED={seed}")
    draw = random.Random(seed)
    for number in range(1, RANDOM + 1):
        scenario = by_chance(draw, STEPS)
        print(f"{number}. {scenario}", flush=True)
        print(f"   {judge(scenario, tmp_path / str(number), ground, undisturbed):.1f} s", flush=True)
