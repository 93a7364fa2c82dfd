"""Two runs of one job, with folders that were mixed up: no run goes on with a folder of the other, and none is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hosts import KILLED, Hosts, at_step, checkpoints, finish_well, with_timeouts
from support.kills import PARTIES, write_run

pytestmark = pytest.mark.slow


@pytest.fixture(params=[5, 25])  # the last checkpoints are of steps 0 and 20
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Hosts]]:
    """Two runs of one job whose parties were all killed at the same step."""
    run, step = with_timeouts(), request.param
    path = write_run(tmp_path, run)
    found = [Hosts(path, run, tmp_path / out, faults=at_step("label_party", step)) for out in ("one", "other")]
    with found[0], found[1]:
        for hosts in found:
            hosts.start()
            assert hosts.finish("label_party") == {"label_party": KILLED}
            hosts.kill("lab", "bank")
            assert all(checkpoints(hosts, party)[-1] == step // 20 * 20 for party in PARTIES)
        yield found


def named(hosts: Hosts, party: str) -> str:
    """The run of a party's folder, as messages name it."""
    run: str = json.loads((hosts.out / party / "state.json").read_text())["run"]
    return run[:8]


def test_P16_a_party_with_the_folder_of_another_run_is_refused(runs: list[Hosts], undisturbed: Path) -> None:
    one, other = runs
    one.start("label_party", "bank")
    status, output = one.another("lab", other.out).finish()
    assert status == 2, output
    assert "the label party refused party 'lab': party 'lab' comes with a folder of another run of this job" in output
    assert f"run {named(other, 'lab')}, that of the label party is of run {named(one, 'label_party')}" in output
    assert "start both with the --out DIR with which they began the same run" in output
    one.running["label_party"].await_words("comes with a folder of another run of this job")
    one.start("lab")
    finish_well(one, undisturbed)
    other.start()
    finish_well(other, undisturbed)


def test_P16_a_label_party_with_the_folder_of_another_run_answers_nothing(runs: list[Hosts], undisturbed: Path) -> None:
    one, other = runs
    wrong = one.another("label_party", other.out)
    one.start("lab", "bank")
    assert one.finish("lab", "bank") == {"lab": 2, "bank": 2}
    for party in ("lab", "bank"):
        assert f"party {party!r} comes with a folder of another run of this job" in one.outputs([party])
    wrong.kill()
    one.start()
    finish_well(one, undisturbed)
    other.start()
    finish_well(other, undisturbed)


@pytest.mark.parametrize("older", [PARTIES, ("lab",)], ids="+".join)
def test_P20_folders_of_an_earlier_release_which_named_no_run_go_on(
    older: tuple[str, ...], runs: list[Hosts], undisturbed: Path
) -> None:
    hosts = runs[0]
    for party in older:
        state = hosts.out / party / "state.json"
        content = json.loads(state.read_text())
        state.write_text(json.dumps({key: value for key, value in content.items() if key != "run"} | {"schema": 1}))
    hosts.start()
    finish_well(hosts, undisturbed)
    assert len({named(hosts, party) for party in PARTIES}) == 1
