"""A party that runs in two places, and calls under its name or a stranger's: one goes on, and the bits are the same."""

from __future__ import annotations

import threading
from pathlib import Path

import grpc
import pytest
from support.fault_points import once_before
from support.runs import BREAST_CANCER, Run, changed, write
from support.scripted import ScriptedClient
from support.threads import SECRET, Outcome, Parties, train

from cutlayer.common import run_files
from cutlayer.common.errors import PeerError, RefusedError
from cutlayer.label_party.training import LabelTraining
from cutlayer.nonlabel_party.process import NonlabelParty
from cutlayer.v1 import training_pb2

RUN = changed(
    BREAST_CANCER,
    {
        "job.epochs": 6,
        "job.checkpoint": {"every_steps": 10},
        "label_party.timeouts": {"goodbye_s": 1, "reconnect_s": 20},
        "nonlabel_parties.lab.timeouts": {"goodbye_s": 1, "reconnect_s": 20},
        "nonlabel_parties.lab.id_secret": SECRET,
    },
)
CALLS = 20
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The results of the run with each party in one place."""
    return train(tmp_path_factory.mktemp("undisturbed"), RUN).require_success()


class Second:
    """Another process of lab, on another host, that starts when step `at` is trained; checkpoints are of 10, 20, ..."""

    def __init__(self, folder: Path, run: Run, at: int, patch: pytest.MonkeyPatch) -> None:
        self.out = folder / "elsewhere"
        self.error: BaseException | None = None
        self._file = run_files.load(write(folder, run, "second.yaml"))
        self._thread = threading.Thread(target=self._run, daemon=True)
        once_before(patch, LabelTraining, "step", lambda _, step, *__: step.number == at, self._thread.start)
        self.parties = Parties(folder, RUN)

    def _run(self) -> None:
        try:
            NonlabelParty(self._file, "lab", self.out, self.parties.address, events=False).run()
        except BaseException as error:
            self.error = error

    def wait(self) -> Outcome:
        outcome = self.parties.wait()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return outcome


@pytest.mark.parametrize("at", [5, 25])
def test_P03_the_same_party_in_two_places(tmp_path: Path, undisturbed: Outcome, at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        second = Second(tmp_path, RUN, at, patch)
        outcome = second.wait()
    outcome.require_success()
    assert isinstance(second.error, RefusedError)
    assert "party 'lab' comes without a checkpoint of this run, which has saved step" in str(second.error)
    for party in ("label_party", "lab"):
        assert outcome.weights(party) == undisturbed.weights(party)


@pytest.mark.parametrize("at", [5, 25])
def test_P03_another_party_under_the_same_name_spoils_nothing(tmp_path: Path, undisturbed: Outcome, at: int) -> None:
    other = changed(RUN, {"nonlabel_parties.lab.data.part": "1/2"})
    with pytest.MonkeyPatch.context() as patch:
        second = Second(tmp_path, other, at, patch)
        outcome = second.wait()
    assert isinstance(second.error, PeerError | RefusedError)
    if any(outcome.errors.values()):  # else the first was quick enough to take its place back
        assert all(isinstance(error, PeerError) for error in outcome.errors.values())
        train(tmp_path, RUN).require_success()
    for party in ("label_party", "lab"):
        assert outcome.weights(party) == undisturbed.weights(party)


def test_P03_many_calls_under_a_party_s_name_and_a_stranger_s(tmp_path: Path, undisturbed: Outcome) -> None:
    found: list[tuple[str, Code]] = []
    callers: list[threading.Thread] = []

    def call(name: str) -> None:
        client = ScriptedClient(parties.address, RUN)
        hello = client.hello()
        hello.hello.party = name
        for method, frame in (("Train", hello), ("AlignRows", training_pb2.AlignRowsRequest(hello=hello.hello))):
            client.call(method, frame)
            found.append((name, client.received[-1][1][0]))
        client.channel.close()

    def call_all() -> None:
        for number in range(CALLS):
            for name in ("lab", "stranger"):
                callers.append(threading.Thread(target=call, args=(name,), name=f"{name} {number}"))
                callers[-1].start()

    with pytest.MonkeyPatch.context() as patch:
        once_before(patch, LabelTraining, "step", lambda _, step, *__: step.number == 15, call_all)
        parties = Parties(tmp_path, RUN)
        outcome = parties.wait().require_success()
    for caller in callers:
        caller.join(60)
    assert len(found) == 4 * CALLS
    # RESOURCE_EXHAUSTED: more streams at a time than honest parties need; UNAVAILABLE: the run was over before
    busy = {Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE}
    assert {code for name, code in found if name == "stranger"} - busy == {Code.PERMISSION_DENIED}
    assert {code for name, code in found if name == "lab"} - busy <= {Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT}
    for party in ("label_party", "lab"):
        assert outcome.weights(party) == undisturbed.weights(party)
