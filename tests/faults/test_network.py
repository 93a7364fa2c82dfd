"""Connections that break, stall or change bytes: the same weights in the end, or a clear error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.proxy import CutAt, Direction, FlipAt, Proxy
from support.runs import BREAST_CANCER, Run, changed
from support.threads import Outcome, Parties, train

TIMEOUTS = {"reconnect_s": 8, "stall_s": 6, "keepalive_s": 1, "connect_s": 20, "goodbye_s": 1}
RUN = changed(
    BREAST_CANCER,
    {
        "label_party.defense": "iso",
        "label_party.noise_secret": "noise",
        "label_party.timeouts": TIMEOUTS,
        "nonlabel_parties.lab.timeouts": TIMEOUTS,
    },
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run as it is without a fault."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "noise").write_bytes(bytes(32))
    return train(folder, RUN).require_success()


@pytest.fixture
def through_proxy(tmp_path: Path) -> Iterator[Callable[[Run], tuple[Proxy, Parties]]]:
    """Starts a run whose lab connects through a proxy."""
    (tmp_path / "noise").write_bytes(bytes(32))
    proxies: list[Proxy] = []

    def connect(address: str) -> str:
        proxies.append(Proxy(address))
        return proxies[-1].address

    def begin(run: Run) -> tuple[Proxy, Parties]:
        parties = Parties(tmp_path, run, connect=connect)
        return proxies[-1], parties

    yield begin
    for proxy in proxies:
        proxy.close()


Begin = Callable[[Run], tuple[Proxy, Parties]]


def require_same_weights(outcome: Outcome, undisturbed: Outcome) -> None:
    """Every weight of both models is, bit for bit, that of the undisturbed run."""
    for party in ("label_party", "lab"):
        assert outcome.weights(party) == undisturbed.weights(party)


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("byte", [1_000, 13_000, 20_001, 31_111])
def test_P07_P02_cut_connection_is_opened_again(
    through_proxy: Begin, undisturbed: Outcome, direction: Direction, byte: int
) -> None:
    proxy, parties = through_proxy(RUN)
    cut = CutAt(byte)
    proxy.edits[direction] = cut
    outcome = parties.wait().require_success()
    assert cut.done
    assert proxy.connections > 1
    require_same_weights(outcome, undisturbed)


def test_P07_delay_changes_nothing(through_proxy: Begin, undisturbed: Outcome) -> None:
    proxy, parties = through_proxy(RUN)
    proxy.delay_s = 0.02
    require_same_weights(parties.wait().require_success(), undisturbed)
    assert proxy.connections == 1


def test_P07_many_cuts(through_proxy: Begin, undisturbed: Outcome) -> None:
    proxy, parties = through_proxy(RUN)
    proxy.delay_s = 0.01
    while proxy.connections < 5 and any(thread.is_alive() for thread in parties.threads):
        before = sum(proxy.bytes.values())
        while sum(proxy.bytes.values()) < before + 12_000 and any(thread.is_alive() for thread in parties.threads):
            time.sleep(0.005)
        proxy.cut()
    require_same_weights(parties.wait().require_success(), undisturbed)
    assert proxy.connections > 2


def test_P07_P08_blackhole_that_ends_in_time(through_proxy: Begin, undisturbed: Outcome) -> None:
    proxy, parties = through_proxy(RUN)
    _after_bytes(proxy, parties, 12_000)
    proxy.blackhole = True
    time.sleep(3.5)  # longer than keepalive needs to notice
    proxy.blackhole = False
    outcome = parties.wait().require_success()
    assert proxy.connections > 1
    require_same_weights(outcome, undisturbed)


def test_P08_blackhole_that_stays_ends_both_in_bounded_time(through_proxy: Begin) -> None:
    proxy, parties = through_proxy(RUN)
    _after_bytes(proxy, parties, 12_000)
    proxy.blackhole = True
    outcome = parties.wait(timeout=40)
    assert "party 'lab' was lost at step" in outcome.error("label_party")
    assert "the label party at" in outcome.error("lab")
    assert "was lost at step" in outcome.error("lab")
    assert "did not come back within 8 s" in outcome.error("lab")


@pytest.mark.parametrize("direction", ["up", "down"])
def test_flipped_bit_in_a_tensor_is_noticed(through_proxy: Begin, direction: Direction) -> None:
    # No defense: the flipped byte is in the numbers of a matrix, 200 bytes after the fields that say 64 rows, width 8.
    proxy, parties = through_proxy(RUN)
    flip = FlipAt(b"\x08\x40\x10\x08\x18\x01", 200)
    proxy.edits[direction] = flip
    outcome = parties.wait()
    assert flip.done
    assert "does not continue the history" in outcome.error("lab")
    assert "changed on the way" in outcome.error("lab")
    assert "'lab' has failed" in outcome.error("label_party")
    for party in ("label_party", "lab"):
        assert not (outcome.out / party / "model").exists()


def _after_bytes(proxy: Proxy, parties: Parties, count: int) -> None:
    """Wait until that much has gone through: training is under way."""
    proxy.delay_s = 0.02
    while sum(proxy.bytes.values()) < count:
        assert all(thread.is_alive() for thread in parties.threads)
        time.sleep(0.005)
    proxy.delay_s = 0.0
