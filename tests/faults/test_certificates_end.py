"""Certificates that expire while a run is under way: an open connection goes on, and so does a new one once renewed."""

from __future__ import annotations

import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest
from faults.proxy import Proxy
from support import kits
from support.runs import BREAST_CANCER, Run, changed
from support.threads import Outcome, Parties, train

from cutlayer import certs
from cutlayer.common.certificates import now
from cutlayer.common.errors import CertificateError

pytestmark = pytest.mark.slow

PATIENCE = {"reconnect_s": 20, "stall_s": 20, "keepalive_s": 1, "connect_s": 20, "goodbye_s": 1}
TIMEOUTS = {"label_party.timeouts": PATIENCE, "nonlabel_parties.lab.timeouts": PATIENCE}
RUN = changed(BREAST_CANCER, TIMEOUTS | {"job.epochs": 10})  # far from its end when the line gets slow
HOLDS_S = 5.0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run without TLS."""
    return train(tmp_path_factory.mktemp("plain"), RUN).require_success()


def soon_over(folder: Path, party: str) -> None:
    """Give `party` a certificate that holds for some seconds."""
    shutil.rmtree(folder / party)
    certs.issue(folder, [party], days=1, begins=now() - timedelta(days=1) + timedelta(seconds=HOLDS_S))


def under_way(folder: Path, run: Run) -> tuple[Proxy, Parties]:
    """A run whose line is slow, once it trains."""
    proxies: list[Proxy] = []

    def connect(address: str) -> str:
        proxies.append(Proxy(address))
        return proxies[0].address

    parties = Parties(folder, run, connect=connect)
    while proxies[0].bytes["up"] < 16_000:
        assert all(thread.is_alive() for thread in parties.threads)
        time.sleep(0.005)
    proxies[0].delay_s = 0.3
    return proxies[0], parties


def await_log(parties: Parties, party: str, words: str) -> None:
    """Wait until the log of `party` has `words`."""
    deadline = time.monotonic() + 30
    while words not in parties.outcome.log(party):
        assert time.monotonic() < deadline, parties.outcome.log(party)
        time.sleep(0.05)


@pytest.mark.parametrize("party", kits.PARTIES)
def test_P13_an_open_connection_outlives_a_certificate_and_a_new_one_waits_for_its_renewal(
    tmp_path: Path, undisturbed: Outcome, party: str
) -> None:
    ours = kits.make(tmp_path / "certs")
    soon_over(ours, party)
    proxy, parties = under_way(tmp_path, kits.with_tls(RUN, ours))
    time.sleep(HOLDS_S + 1)
    assert "lost the label party" not in parties.outcome.log("lab")
    proxy.cut()
    await_log(parties, "lab", "has expired")
    certs.renew(ours, party)
    proxy.delay_s = 0.0
    outcome = parties.wait().require_success()
    proxy.close()
    for name in kits.PARTIES:
        assert outcome.weights(name) == undisturbed.weights(name)


def test_P13_a_certificate_that_nobody_renews_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    ours = kits.make(tmp_path / "certs")
    soon_over(ours, "lab")
    run = changed(kits.with_tls(RUN, ours), {"nonlabel_parties.lab.timeouts.reconnect_s": 2})
    proxy, parties = under_way(tmp_path, run)
    time.sleep(HOLDS_S + 1)
    proxy.cut()
    outcome = parties.wait()
    proxy.close()
    assert isinstance(outcome.errors["lab"], CertificateError)
    assert "cert.pem: has expired on" in outcome.error("lab")
    assert "party 'lab'" in outcome.error("label_party")
