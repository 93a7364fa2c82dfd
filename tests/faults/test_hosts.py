"""Parties on hosts of their own, each started by its own command: killed, frozen, stopped, doubled."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from faults.proxy import Proxy
from support.forked import Fault
from support.hosts import KILLED, TIMEOUTS, at_step, checkpoints, finish_well, hosts_of, with_timeouts
from support.kills import PARTIES, require_same
from support.runs import changed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("step", [5, 31])
@pytest.mark.parametrize("party", ["label_party", "lab"])
def test_P01_the_others_wait_for_a_killed_party_and_say_so(
    party: str, step: int, tmp_path: Path, undisturbed: Path
) -> None:
    with hosts_of(tmp_path, with_timeouts(), at_step(party, step)) as hosts:
        hosts.start()
        assert hosts.finish(party) == {party: KILLED}
        if party == "label_party":
            for name in ("lab", "bank"):
                hosts.running[name].await_words("lost the label party at", "waiting for the label party at")
        else:
            hosts.running["label_party"].await_words("waiting for lab (lost at step ")
        hosts.start(party)
        finish_well(hosts, undisturbed)
        for name in PARTIES:
            assert f"from the checkpoint of step {step // 20 * 20}\n" in hosts.outputs([name])


def test_P01_a_party_comes_back_after_all_the_others_were_started_again(tmp_path: Path, undisturbed: Path) -> None:
    with hosts_of(tmp_path, with_timeouts(), at_step("lab", 47)) as hosts:
        hosts.start()
        hosts.finish("lab")
        hosts.kill("label_party", "bank")
        hosts.start("bank", "label_party")
        hosts.running["label_party"].await_words("waiting for lab (not there yet")
        hosts.kill("label_party")  # once more, before there was a step
        hosts.start("label_party")
        hosts.start("lab")
        finish_well(hosts, undisturbed)


def test_P01_all_are_killed_and_started_in_any_order(tmp_path: Path, undisturbed: Path) -> None:
    with hosts_of(tmp_path, with_timeouts(), at_step("label_party", 31) | at_step("bank", 70)) as hosts:
        hosts.start("bank", "lab", "label_party")
        hosts.finish("label_party")
        hosts.kill("lab", "bank")
        hosts.start("lab", "label_party", "bank")
        finish_well(hosts, undisturbed)


@pytest.mark.parametrize("party", ["label_party", "lab"])
def test_P01_a_frozen_party_goes_on(party: str, tmp_path: Path, undisturbed: Path) -> None:
    """Until the others take the connection for lost."""
    noticed = {"label_party": ("bank", "lost the label party"), "lab": ("label_party", "waiting for lab (lost at step")}
    with hosts_of(tmp_path, with_timeouts(), at_step(party, 31, signal.SIGSTOP)) as hosts:
        hosts.start()
        hosts.running[party].await_stopped()
        other, words = noticed[party]
        hosts.running[other].await_words(words)
        hosts.running[party].signal(signal.SIGCONT)
        finish_well(hosts, undisturbed)


@pytest.mark.parametrize("party", ["label_party", "lab"])
def test_P01_who_does_not_come_back_in_time_is_named_and_all_go_on_later(
    party: str, tmp_path: Path, undisturbed: Path
) -> None:
    with hosts_of(tmp_path, with_timeouts(reconnect_s=2), at_step(party, 31)) as hosts:
        hosts.start()
        statuses = hosts.finish()
        assert statuses == dict.fromkeys(PARTIES, 1) | {party: KILLED}
        bank = hosts.outputs(["bank"])
        if party == "label_party":
            assert f"the label party at {hosts.address} was lost at step 3" in bank
            assert "and did not come back within 2 s" in bank
        else:
            assert "the label party ended the session: it lost party 'lab'" in bank
            label = hosts.outputs(["label_party"])
            assert "party 'lab' was lost at step 32 and did not come back within 2 s" in label
        assert "Traceback" not in hosts.outputs()
        assert all(20 in checkpoints(hosts, name) for name in PARTIES)
        hosts.start()
        finish_well(hosts, undisturbed)


def test_P01_a_new_stream_takes_over_while_the_old_one_hangs(tmp_path: Path, undisturbed: Path) -> None:
    """The label party's side of the old connection never hears that it has ended."""
    run = changed(with_timeouts(), {"label_party.timeouts": TIMEOUTS | {"keepalive_s": 600}})
    with hosts_of(tmp_path, run, at_step("lab", 31, signal.SIGSTOP)) as hosts:
        proxy = Proxy(hosts.address)
        try:
            hosts.connect = proxy.address
            hosts.start()
            hosts.running["lab"].await_stopped()
            proxy.half_open("up")
            hosts.running["lab"].signal(signal.SIGCONT)
            finish_well(hosts, undisturbed)
        finally:
            proxy.close()
        assert "lost the label party" in hosts.outputs(["lab"])
        assert "lab (lost" not in hosts.outputs(["label_party"])


@pytest.mark.parametrize("step", [5, 47])
def test_P03_a_second_copy_with_another_folder_is_refused_and_changes_nothing(
    step: int, tmp_path: Path, undisturbed: Path
) -> None:
    with hosts_of(tmp_path, with_timeouts(), at_step("lab", step, signal.SIGSTOP)) as hosts:
        hosts.start()
        first = hosts.running["lab"]
        first.await_stopped()
        second = hosts.another("lab", tmp_path / "elsewhere")
        status, output = second.finish()
        assert status == 2
        saved = step // 20 * 20
        assert f"party 'lab' comes without a checkpoint of this run, which has saved step {saved}:" in output
        assert "start it on the host and with the --out DIR that it began with" in output
        first.signal(signal.SIGCONT)
        finish_well(hosts, undisturbed)


@pytest.mark.parametrize("step", [5, 47])
def test_P03_a_killed_party_with_another_folder_is_refused_and_comes_back_with_its_own(
    step: int, tmp_path: Path, undisturbed: Path
) -> None:
    with hosts_of(tmp_path, with_timeouts(), at_step("lab", step)) as hosts:
        hosts.start()
        hosts.finish("lab")
        status, output = hosts.another("lab", tmp_path / "elsewhere").finish()
        assert status == 2
        assert "start it on the host and with the --out DIR that it began with" in output
        assert "give another --out DIR at every party, and the job another `seed`" in output
        hosts.start("lab")
        finish_well(hosts, undisturbed)


def test_P03_of_two_copies_before_the_first_answer_the_newer_one_goes_on(tmp_path: Path, undisturbed: Path) -> None:
    faults = {
        "lab": [Fault("before", "cutlayer.nonlabel_party.client:LabelPartyClient._read_answer", 1, (signal.SIGSTOP,))],
        "bank": [Fault("before", "cutlayer.nonlabel_party.training:BottomTraining.forward", 1, (signal.SIGSTOP,))],
    }
    with hosts_of(tmp_path, with_timeouts(keepalive_s=60), faults) as hosts:  # a frozen one keeps its line
        hosts.start()
        first, bank = hosts.running["lab"], hosts.running["bank"]
        first.await_stopped()
        bank.await_stopped()
        hosts.running["lab"] = hosts.another("lab", tmp_path / "elsewhere")
        hosts.running["lab"].await_words("rows matched")
        bank.signal(signal.SIGCONT)
        hosts.await_step(6)
        first.signal(signal.SIGCONT)
        status, output = first.finish()
        assert status == 1
        assert (
            "another process has connected as party 'lab' and goes on in its place, after the last step that" in output
        )
        assert "all parties have saved: no step is lost. This one ends" in output
        assert set(hosts.finish().values()) == {0}, hosts.outputs()
        shutil.rmtree(hosts.out / "lab")
        (tmp_path / "elsewhere" / "lab").rename(hosts.out / "lab")
        require_same(hosts.out, undisturbed)


@pytest.mark.parametrize("step", [5, 47])
def test_P16_a_label_party_without_its_folder_is_not_gone_on_with(step: int, tmp_path: Path, undisturbed: Path) -> None:
    """Its noise secret and its memory of what it has answered are in that folder."""
    with hosts_of(tmp_path, with_timeouts(), at_step("label_party", step)) as hosts:
        hosts.start()
        hosts.finish("label_party")
        wrong = hosts.another("label_party", tmp_path / "elsewhere")
        assert hosts.finish("lab", "bank") == {"lab": 2, "bank": 2}
        saved = f"has saved step {step // 20 * 20} of this run, of which the label party's folder knows nothing"
        for name in ("lab", "bank"):
            assert saved in hosts.outputs([name])
            assert "start the label party with the --out DIR that it began with" in hosts.outputs([name])
        wrong.kill()
        hosts.start()
        finish_well(hosts, undisturbed)


@pytest.mark.parametrize("party", ["label_party", "lab"])
def test_P06_sigterm_ends_after_the_step_with_a_checkpoint(party: str, tmp_path: Path, undisturbed: Path) -> None:
    inside = {
        "label_party": "cutlayer.label_party.walk:Walk._train_or_evaluate",
        "lab": "cutlayer.nonlabel_party.training:BottomTraining.forward",
    }
    fault = Fault("before", inside[party], 28, (signal.SIGTERM,))
    with hosts_of(tmp_path, with_timeouts(), {party: [fault]}) as hosts:
        hosts.start()
        assert hosts.finish() == dict.fromkeys(PARTIES, 1) | {party: 143}
        assert f"{party} stopped by SIGTERM" in hosts.outputs([party])
        others = hosts.outputs(set(PARTIES) - {party})
        assert ("the label party was stopped" if party == "label_party" else "party 'lab' was stopped") in others
        assert {name: checkpoints(hosts, name)[-1] for name in PARTIES} == dict.fromkeys(PARTIES, 28)
        hosts.start()
        finish_well(hosts, undisturbed, saved_elsewhere=True)
        assert "going on from the checkpoint of step 28" in hosts.outputs(["lab"])


@pytest.mark.parametrize("party", ["label_party", "lab"])
def test_P06_a_second_signal_ends_at_once(party: str, tmp_path: Path, undisturbed: Path) -> None:
    inside = {
        "label_party": "cutlayer.label_party.walk:Walk._train_or_evaluate",
        "lab": "cutlayer.nonlabel_party.training:BottomTraining.backward",
    }
    fault = Fault("before", inside[party], 28, (signal.SIGINT, signal.SIGTERM))
    with hosts_of(tmp_path, with_timeouts(), {party: [fault]}) as hosts:
        hosts.start()
        assert hosts.finish(party) == {party: 143}
        assert checkpoints(hosts, party) == [0, 20]
        hosts.start(party)
        finish_well(hosts, undisturbed)


def test_P01_parties_that_have_done_everything_come_back_for_a_label_party_that_has_not(
    tmp_path: Path, undisturbed: Path
) -> None:
    fault = Fault("after", "cutlayer.label_party.exchange:Exchange.await_finish")
    with hosts_of(tmp_path, with_timeouts(reconnect_s=2, connect_s=8), {"label_party": [fault]}) as hosts:
        hosts.start()
        assert hosts.finish() == {"label_party": KILLED, "lab": 0, "bank": 0}
        assert "If another party still waits for this one, start it again" in hosts.outputs(["lab"])
        hosts.start()
        finish_well(hosts, undisturbed)
        for party in PARTIES:
            assert json.loads((hosts.out / party / "state.json").read_text())["finished"]
        hosts.start()
        assert set(hosts.finish().values()) == {0}
        assert all("this run is finished" in hosts.outputs([party]) for party in PARTIES)
