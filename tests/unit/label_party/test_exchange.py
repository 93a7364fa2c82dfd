"""The meeting point of streams and training loop: hand-over, fencing, and every way of being let down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cutlayer.common.errors import PeerError, RolledBack
from cutlayer.common.limits import Timeouts
from cutlayer.common.waiting import Wait
from cutlayer.label_party.exchange import Closed, Exchange, Stream, StreamGone

FAST = Timeouts(connect_s=0.2, reconnect_s=0.2, stall_s=0.2, goodbye_s=0.2)
PATIENT = Timeouts(connect_s=30, reconnect_s=30, stall_s=30, goodbye_s=5)


def make(timeouts: Timeouts = PATIENT, report: Callable[[Sequence[Wait]], None] = lambda _: None) -> Exchange[str, str]:
    return Exchange(["lab", "bank"], timeouts, report)


def in_thread(body: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(body())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_each_party_gets_its_own_answer() -> None:
    exchange = make()

    def party(name: str) -> str:
        stream = exchange.arrive(name)
        exchange.submit(stream, 1, f"z of {name}")
        return exchange.wait_answer(stream, 1)

    threads = [in_thread(lambda name=name: party(name)) for name in ("lab", "bank")]  # type: ignore[misc]
    assert exchange.collect(1) == {"lab": "z of lab", "bank": "z of bank"}
    exchange.publish(1, {"lab": "g for lab", "bank": "g for bank"})
    for thread, _ in threads:
        thread.join(5)
    assert [outcome for _, outcome in threads] == [["g for lab"], ["g for bank"]]


def test_an_answer_survives_the_stream_that_asked_for_it() -> None:
    exchange = make()
    first = exchange.arrive("lab")
    exchange.submit(first, 1, "z")
    exchange.publish(1, {"lab": "g"})
    exchange.depart(first)
    assert exchange.wait_answer(exchange.arrive("lab"), 1) == "g"


def test_a_newer_stream_fences_off_the_older_one() -> None:
    exchange = make()
    older = exchange.arrive("lab")
    thread, outcome = in_thread(lambda: exchange.wait_answer(older, 1))
    newer = exchange.arrive("lab")
    thread.join(5)
    assert isinstance(outcome[0], StreamGone)
    with pytest.raises(StreamGone):
        exchange.submit(older, 1, "late")
    exchange.depart(older)
    exchange.submit(newer, 1, "z")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda e: None, "'lab' did not connect within 0.2 s"),
        (lambda e: e.depart(e.arrive("lab")), "'lab' was lost at step 3 and did not come back within 0.2 s"),
        (lambda e: e.arrive("lab"), "'lab' is connected but sent nothing for 0.2 s at step 3"),
        (lambda e: e.leave("lab", "was stopped"), "'lab' was stopped at step 3"),
    ],
    ids=["absent", "lost", "stalled", "left"],
)
def test_being_let_down_names_the_party_and_the_step(
    prepare: Callable[[Exchange[str, str]], None], message: str
) -> None:
    exchange = make(FAST)
    exchange.submit(exchange.arrive("bank"), 3, "z")
    prepare(exchange)
    with pytest.raises(PeerError, match=message) as caught:
        exchange.collect(3)
    assert caught.value.party == "lab"


def test_closing_reaches_everyone_who_waits_or_comes_later() -> None:
    exchange = make()
    stream = exchange.arrive("lab")

    def wait_and_go() -> None:
        try:
            exchange.wait_answer(stream, 1)
        finally:
            exchange.depart(stream)

    thread, outcome = in_thread(wait_and_go)
    exchange.close("PARTY_LOST", "bank")
    thread.join(5)
    assert isinstance(outcome[0], Closed)
    assert (outcome[0].reason, outcome[0].party) == ("PARTY_LOST", "bank")
    with pytest.raises(Closed):
        exchange.submit(exchange.arrive("bank"), 1, "z")


def test_closing_does_not_wait_for_a_stream_that_hangs() -> None:
    exchange = make(FAST)
    exchange.arrive("lab")
    began = time.monotonic()
    exchange.close("FINISHED")
    assert time.monotonic() - began < 5


def test_finish_is_awaited_and_the_missing_are_named() -> None:
    exchange = make(FAST)
    exchange.depart(exchange.arrive("bank"))
    exchange.leave("lab", "has finished")
    assert exchange.await_finish() == {"bank": "was lost"}


def test_waiting_is_reported_with_names_and_reasons() -> None:
    told: list[Sequence[Wait]] = []
    exchange = make(Timeouts(connect_s=30, reconnect_s=20, stall_s=10), told.append)
    exchange.depart(exchange.arrive("bank"))
    thread, outcome = in_thread(lambda: exchange.collect(2))
    while not told:
        time.sleep(0.01)
    lab, bank = told[0]
    assert [(wait.peer, wait.why, wait.limit_s) for wait in (lab, bank)] == [
        ("lab", "not there yet", 30),
        ("bank", "lost at step 2", 20),
    ]
    assert 0 < bank.seconds < 5
    assert 15 < bank.left < 20
    streams = [exchange.arrive(party) for party in ("lab", "bank")]
    while not [waits for waits in told if any(wait.why == "silent at step 2" for wait in waits)]:
        time.sleep(0.01)
    for stream in streams:
        exchange.submit(stream, 2, "z")
    thread.join(5)
    assert outcome == [{"lab": "z", "bank": "z"}]
    assert told[-1] == ()


def test_a_party_that_was_lost_and_returns_is_told_once() -> None:
    returned: list[str] = []
    exchange = Exchange[str, str](["lab", "bank"], PATIENT, lambda _: None, returned.append)
    exchange.depart(exchange.arrive("lab"))
    assert returned == []
    exchange.arrive("lab")
    exchange.arrive("lab")
    assert returned == ["lab"]


def test_the_queue_can_be_looked_at() -> None:
    exchange = make()
    assert (exchange.connected, exchange.unanswered) == (0, 0)
    stream = exchange.arrive("lab")
    exchange.submit(stream, 1, "z")
    assert (exchange.connected, exchange.unanswered) == (1, 1)
    exchange.publish(1, {"lab": "g"})
    exchange.depart(stream)
    assert (exchange.connected, exchange.unanswered) == (0, 0)


def aligned(exchange: Exchange[str, str]) -> None:
    """Number 0 is answered."""
    for party in ("lab", "bank"):
        exchange.submit(exchange.arrive(party), 0, f"ids of {party}")
    exchange.collect(0)
    exchange.publish(0, {"lab": "rows", "bank": "rows"})


def trained(exchange: Exchange[str, str]) -> list[Stream]:
    """Step 1 is answered, too; the streams."""
    aligned(exchange)
    streams = [exchange.arrive("lab"), exchange.arrive("bank")]
    for stream in streams:
        exchange.submit(stream, 1, "z")
    exchange.publish(1, {"lab": "g", "bank": "g"})
    return streams


def test_ids_that_come_again_before_a_step_is_answered_get_the_same_answer() -> None:
    exchange = make()
    aligned(exchange)
    again = exchange.arrive("lab")
    exchange.submit(again, 0, "ids of lab")
    assert exchange.wait_answer(again, 0) == "rows"


def test_P01_ids_that_come_after_a_step_was_answered_send_all_back() -> None:
    exchange = make()
    _, bank = trained(exchange)
    again = exchange.arrive("lab")
    exchange.submit(again, 0, "ids of lab, again")
    thread, outcome = in_thread(lambda: exchange.wait_answer(again, 0))
    with pytest.raises(RolledBack):
        exchange.collect(2)
    with pytest.raises(RolledBack):
        exchange.publish(2, {})
    with pytest.raises(Closed) as caught:
        exchange.submit(bank, 2, "z")
    assert caught.value.reason == "ROLLBACK"
    before = exchange.arrive("bank")
    exchange.submit(before, 0, "ids of bank, again")
    assert exchange.collect(0) == {"lab": "ids of lab, again", "bank": "ids of bank, again"}
    exchange.publish(0, {"lab": "rows again", "bank": "rows again"})
    thread.join(5)
    assert outcome == ["rows again"]
    with pytest.raises(Closed):  # a stream of the time before
        exchange.submit(before, 2, "z")


def test_who_has_finished_is_kept_until_the_results_are_written_or_all_go_back() -> None:
    exchange = make()
    trained(exchange)
    waits = [in_thread(lambda p=party: exchange.wait_confirmation(p, lambda: True)) for party in ("lab", "bank")]  # type: ignore[misc]
    assert exchange.await_finish() == {}
    assert all(thread.is_alive() for thread, _ in waits)
    exchange.confirm()
    for thread, outcome in waits:
        thread.join(5)
        assert outcome == [None]


def test_P01_who_has_finished_goes_back_with_one_who_has_not() -> None:
    exchange = make()
    trained(exchange)
    thread, outcome = in_thread(lambda: exchange.wait_confirmation("bank", lambda: True))
    again = exchange.arrive("lab")
    exchange.submit(again, 0, "ids of lab")
    in_thread(lambda: exchange.wait_answer(again, 0))
    with pytest.raises(RolledBack):
        exchange.await_finish()
    thread.join(5)
    assert isinstance(outcome[0], Closed)
    assert outcome[0].reason == "ROLLBACK"
    exchange.close("FAILED")


def test_P03_who_was_replaced_does_not_begin_again_and_replace_the_other() -> None:
    exchange = make()
    lab, _ = trained(exchange)
    newer = exchange.arrive("lab", "elsewhere")
    exchange.submit(newer, 0, "ids of lab, from elsewhere")
    going_back, _ = in_thread(lambda: exchange.wait_answer(newer, 0))
    with pytest.raises(RolledBack):
        exchange.collect(2)
    with pytest.raises(StreamGone):
        exchange.wait_answer(lab, 2)
    exchange.close("FINISHED")
    going_back.join(5)


def test_P03_another_process_of_that_name_cannot_end_the_session() -> None:
    exchange = make(FAST)
    exchange.submit(exchange.arrive("bank"), 3, "z")
    exchange.arrive("lab", "host 1")
    exchange.leave("lab", "has failed", "host 2")
    with pytest.raises(PeerError, match="'lab' is connected but sent nothing"):
        exchange.collect(3)
    exchange.leave("lab", "has failed", "host 1")
    with pytest.raises(PeerError, match="'lab' has failed at step 3"):
        exchange.collect(3)


def test_P07_chunks_of_a_large_matrix_are_a_sign_of_life() -> None:
    exchange = make(FAST)
    lab, bank = exchange.arrive("lab"), exchange.arrive("bank")
    exchange.submit(bank, 1, "z")

    def in_chunks() -> None:
        for _ in range(8):
            time.sleep(0.1)
            lab.hear()
        exchange.submit(lab, 1, "z")

    thread, _ = in_thread(in_chunks)
    assert set(exchange.collect(1)) == {"lab", "bank"}
    thread.join(5)


def test_P08_a_party_that_comes_back_again_and_again_is_not_waited_for_for_ever() -> None:
    exchange = make(FAST)
    over = threading.Event()

    def flap() -> None:
        while not over.is_set():
            exchange.arrive("lab")
            time.sleep(0.05)

    thread, _ = in_thread(flap)
    exchange.submit(exchange.arrive("bank"), 1, "z")
    with pytest.raises(PeerError, match="'lab' came back again and again at step 1"):
        exchange.collect(1)
    over.set()
    thread.join(5)
