"""Where a label party may listen and be reached: by IPv4, IPv6 and by name, with and without TLS."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from support import kits
from support.runs import BREAST_CANCER, changed
from support.threads import Outcome, Parties, train

RUN = changed(BREAST_CANCER, {"job.epochs": 1})


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run by IPv4."""
    return train(tmp_path_factory.mktemp("plain"), RUN).require_success()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("host", ["[::1]", "localhost"])
def test_parties_meet_at(tmp_path: Path, plain: Outcome, host: str, *, tls: bool) -> None:
    if host == "[::1]" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    run = kits.with_tls(RUN, kits.make(tmp_path / "certs")) if tls else RUN
    outcome = Parties(tmp_path, run, host=host).wait().require_success()
    assert outcome.weights("lab") == plain.weights("lab")


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
