"""What tests of kills compare with."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hosts import Hosts
from support.kill_points import RUN
from support.kills import write_run


@pytest.fixture(scope="session")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run file of `support.kill_points.RUN`; beside it in `undisturbed` what it leaves without a fault."""
    path = write_run(tmp_path_factory.mktemp("killed-run"), RUN)
    with Hosts(path, RUN, path.parent / "undisturbed") as hosts:
        hosts.start()
        hosts.finish_whatever_happens()
    return path


@pytest.fixture
def undisturbed(killed_run: Path) -> Path:
    """What `killed_run` leaves without a fault."""
    return killed_run.parent / "undisturbed"
