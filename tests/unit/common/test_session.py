import hashlib
from dataclasses import replace

import pytest

from cutlayer.common.errors import CutlayerError, FrameError, NotAllowedError, OrderError, SkewError
from cutlayer.common.handshake import PROTOCOL, Greeting, Terms, check_terms
from cutlayer.common.history import LinkState, next_history, start_of_history
from cutlayer.label_party.session import AnswerAgain, Compute, LabelPartyLink, Pending
from cutlayer.nonlabel_party.session import NonlabelPartyLink

TERMS = Terms("lab", b"j" * 32, 16, 455, b"r" * 32)
UNALIGNED = replace(TERMS, rows_count=None, rows_digest=None)
ROWS = b"b" * 32
STEPS = 3


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def links() -> tuple[LabelPartyLink[str], NonlabelPartyLink]:
    return LabelPartyLink(TERMS, STEPS), NonlabelPartyLink(TERMS, STEPS)


def receive(label: LabelPartyLink[str], step: int, z: str, history: bytes) -> Compute | AnswerAgain[str] | Pending:
    return label.on_activation(step, digest(z), ROWS, history, ROWS)


def answer(label: LabelPartyLink[str], step: int) -> bytes:
    history = label.seal(step, digest(f"g{step}"))
    label.answered(step, f"answer {step}")
    return history


def run(label: LabelPartyLink[str], lab: NonlabelPartyLink, steps: range) -> None:
    for step in steps:
        assert receive(label, step, f"z{step}", lab.activation(step, digest(f"z{step}"))) == Compute(step)
        lab.on_answer(step, answer(label, step), digest(f"g{step}"))
        lab.applied(step)


def greeting(**changes: object) -> Greeting:
    return replace(NonlabelPartyLink(TERMS, STEPS).greeting("0.9"), **changes)  # type: ignore[arg-type]


# The handshake.

REFUSED: dict[str, tuple[dict[str, object], type[CutlayerError], str]] = {
    "newer major protocol": (
        {"protocol": (2, 0)},
        SkewError,
        r"party 'lab' \(cutlayer 0.9\) speaks protocol 2.0, this side 1.0: install the same release",
    ),
    "older major protocol": ({"protocol": (0, 9)}, SkewError, "speaks protocol 0.9, this side 1.0"),
    "party": ({"party": "clinic"}, NotAllowedError, "'clinic' may not use the link of party 'lab'"),
    "job": ({"job_digest": b"k" * 32}, SkewError, "the `job` sections differ; make that section the same in the run"),
    "cut width": ({"cut_width": 8}, SkewError, "'lab' has 8 numbers a row, the label party 16; see `job.cut_layer`"),
    "rows": ({"rows_count": 454}, SkewError, "'lab' has 454, the label party 455; start all parties again"),
    "row order": (
        {"rows_digest": b"s" * 32},
        SkewError,
        "both sides have 455, but not the same ones or not in the same",
    ),
    "no rows": ({"rows_count": None, "rows_digest": None}, FrameError, "the rows must be aligned first"),
}
MALFORMED: dict[str, tuple[dict[str, object], type[CutlayerError], str]] = {
    "protocol": ({"protocol": (1, None)}, FrameError, "protocol version: expected a whole number, got nothing"),
    "party": ({"party": "x" * 101}, FrameError, "party: expected a text of at most 100 characters"),
    "version": ({"package_version": None}, FrameError, "package_version: expected a text"),
    "job": ({"job_digest": b""}, FrameError, "job_digest: expected 32 bytes, got 0"),
    "cut width": ({"cut_width": None}, FrameError, "cut_width: expected a whole number, got nothing"),
    "row count": ({"rows_count": None}, FrameError, "rows.count: expected a whole number, got nothing"),
    "rows digest": ({"rows_digest": b"r" * 33}, FrameError, "rows.digest: expected 32 bytes, got 33"),
}
AT_THE_LINK: dict[str, tuple[dict[str, object], type[CutlayerError], str]] = {
    "history": ({"history": b"h" * 32}, SkewError, "the histories differ at step 0: the two sides come from different"),
    "step": ({"applied_step": 1}, OrderError, "'lab' has applied step 1, the label party has answered step 0"),
    "no step": ({"applied_step": None}, FrameError, "applied_step: expected a whole number, got nothing"),
    "negative step": ({"applied_step": -1}, FrameError, "applied_step: expected a whole number, got -1"),
    "no history": ({"history": b""}, FrameError, "history: expected 32 bytes, got 0"),
}


def test_P11_two_sides_that_mean_the_same_are_admitted() -> None:
    label, lab = links()
    check_terms(lab.greeting("0.9"), TERMS)
    lab.on_welcome(PROTOCOL, label.on_greeting(lab.greeting("0.9")))


@pytest.mark.parametrize(("changes", "error", "message"), [*REFUSED.values(), *MALFORMED.values()])
def test_P11_each_difference_alone_is_refused_and_named(
    changes: dict[str, object], error: type[CutlayerError], message: str
) -> None:
    for check in (lambda wrong: check_terms(wrong, TERMS), LabelPartyLink[str](TERMS, STEPS).on_greeting):
        with pytest.raises(error, match=message) as caught:
            check(greeting(**changes))
        assert type(caught.value) is error


@pytest.mark.parametrize(("changes", "error", "message"), AT_THE_LINK.values())
def test_P11_another_history_or_step_is_refused_and_named(
    changes: dict[str, object], error: type[CutlayerError], message: str
) -> None:
    with pytest.raises(error, match=message):
        LabelPartyLink[str](TERMS, STEPS).on_greeting(greeting(**changes))


def test_P11_a_newer_minor_protocol_is_accepted_on_both_sides() -> None:
    label, lab = links()
    lab.on_welcome((1, 7), label.on_greeting(greeting(protocol=(1, 7))))


def test_P11_another_major_protocol_of_the_label_party_is_refused() -> None:
    with pytest.raises(SkewError, match="the label party speaks protocol 2.0, this side 1.0"):
        links()[1].on_welcome((2, 0), 1)


@pytest.mark.parametrize("next_step", [0, 2, 3])
def test_P11_a_welcome_to_another_step_is_refused(next_step: int) -> None:
    with pytest.raises(OrderError, match=f"expects step {next_step}, this party has applied step 0"):
        links()[1].on_welcome(PROTOCOL, next_step)


def test_before_the_rows_are_aligned_they_are_not_compared() -> None:
    check_terms(greeting(rows_count=None, rows_digest=None, history=b""), UNALIGNED)
    check_terms(greeting(), UNALIGNED)
    with pytest.raises(SkewError, match="the `job` sections differ"):
        check_terms(greeting(job_digest=b"k" * 32), UNALIGNED)


# Admission of a stream that is opened anew.


def test_a_peer_that_missed_the_last_answer_is_told_to_send_that_step_again() -> None:
    label, lab = links()
    run(label, lab, range(1, 2))
    receive(label, 2, "z2", lab.activation(2, digest("z2")))
    assert label.on_greeting(lab.greeting("0.9")) == 2
    answer(label, 2)
    assert label.on_greeting(lab.greeting("0.9")) == 2


def test_P11_a_peer_that_is_two_answers_behind_is_refused() -> None:
    label, lab = links()
    behind = lab.greeting("0.9")
    run(label, lab, range(1, 3))
    with pytest.raises(OrderError, match="has applied step 0, the label party has answered step 2"):
        label.on_greeting(behind)


def test_P11_a_peer_of_another_run_is_refused_by_its_history() -> None:
    label, lab = links()
    run(label, lab, range(1, 3))
    other = NonlabelPartyLink(TERMS, STEPS, LinkState(2, digest("another run")))
    with pytest.raises(SkewError, match="the histories differ at step 2"):
        label.on_greeting(other.greeting("0.9"))


# Activations.


@pytest.mark.parametrize("step", [0, 1, 4, 2**63])
def test_any_other_step_is_refused_with_the_one_that_is_expected(step: int) -> None:
    label, lab = links()
    run(label, lab, range(1, 3))
    for check in (label.check_step, lambda step: receive(label, step, "z", label.history)):
        with pytest.raises(OrderError, match=f"^step {step} came, expected step 3$"):
            check(step)


def test_after_the_last_step_nothing_is_expected() -> None:
    label, lab = links()
    run(label, lab, range(1, STEPS + 1))
    assert label.finished
    assert lab.finished
    with pytest.raises(OrderError, match="step 4 came, expected nothing after step 3"):
        receive(label, 4, "z4", label.history)


def test_the_last_step_is_answered_again_with_the_same_object() -> None:
    label, lab = links()
    before = lab.history
    run(label, lab, range(1, 2))
    outcome = receive(label, 1, "z1", before)
    assert isinstance(outcome, AnswerAgain)
    assert outcome.answer is label.last_answer
    assert label.answered_step == 1


def test_a_second_activation_for_a_step_is_refused_and_counted() -> None:
    label, lab = links()
    receive(label, 1, "z1", lab.activation(1, digest("z1")))
    assert receive(label, 1, "z1", lab.history) == Pending(1)
    with pytest.raises(OrderError, match="step 1 came again with another activation"):
        receive(label, 1, "other", lab.history)
    assert label.extra_queries == 1
    label.seal(1, digest("g1"))
    assert receive(label, 1, "z1", lab.history) == Pending(1)
    label.answered(1, "answer 1")
    with pytest.raises(OrderError, match="one activation a step is answered"):
        receive(label, 1, "other", lab.history)
    assert label.extra_queries == 2
    assert label.last_answer == "answer 1"


@pytest.mark.parametrize("repeat", [False, True])
def test_P12_an_activation_with_another_history_or_other_rows_changes_nothing(repeat: bool) -> None:
    label, lab = links()
    if repeat:
        before = lab.history
        run(label, lab, range(1, 2))
        step = 1
    else:
        before, step = lab.history, 1
    with pytest.raises(SkewError, match="step 1: the histories differ"):
        receive(label, step, "z1", digest("other"))
    with pytest.raises(SkewError, match="step 1: the rows of this batch are not those of the label party"):
        label.on_activation(step, digest("z1"), digest("swapped rows"), before, ROWS)
    assert type(receive(label, step, "z1", before)) is (AnswerAgain if repeat else Compute)
    assert label.extra_queries == 0


@pytest.mark.parametrize("wrong", [None, b"", b"x" * 31, b"x" * 33, "x" * 32])
@pytest.mark.parametrize("position", [1, 2, 3])
def test_P14_a_malformed_digest_is_refused(position: int, wrong: object) -> None:
    label, lab = links()
    fields = [1, digest("z1"), ROWS, lab.history, ROWS]
    fields[position] = wrong
    with pytest.raises(FrameError, match="expected 32 bytes, got"):
        label.on_activation(*fields)  # type: ignore[arg-type]
    assert receive(label, 1, "z1", lab.history) == Compute(1)


@pytest.mark.parametrize("wrong", [None, -1, 1.0, "1"])
def test_P14_a_malformed_step_is_refused(wrong: object) -> None:
    label, lab = links()
    lab.activation(1, digest("z1"))
    with pytest.raises(FrameError, match="step: expected a whole number, got"):
        label.check_step(wrong)  # type: ignore[arg-type]
    with pytest.raises(FrameError, match="step: expected a whole number, got"):
        lab.on_answer(wrong, lab.history, digest("g1"))  # type: ignore[arg-type]


# Answers.


def test_an_answer_that_does_not_continue_the_history_is_refused_and_not_applied() -> None:
    label, lab = links()
    receive(label, 1, "z1", lab.activation(1, digest("z1")))
    history = answer(label, 1)
    for wrong in ((history, digest("changed")), (digest("changed"), digest("g1"))):
        with pytest.raises(SkewError, match="the answer to step 1 does not continue the history of this link"):
            lab.on_answer(1, *wrong)
    with pytest.raises(FrameError, match="history: expected 32 bytes, got 5"):
        lab.on_answer(1, b"short", digest("g1"))
    assert lab.applied_step == 0
    lab.on_answer(1, history, digest("g1"))


def test_an_activation_that_was_changed_on_the_way_is_noticed_at_its_answer() -> None:
    label, lab = links()
    receive(label, 1, "changed", lab.activation(1, digest("z1")))
    with pytest.raises(SkewError, match="the answer to step 1"):
        lab.on_answer(1, answer(label, 1), digest("g1"))


def test_an_answer_that_is_not_waited_for_is_refused() -> None:
    label, lab = links()
    with pytest.raises(OrderError, match="the answer to step 1 came, but this party does not wait for it"):
        lab.on_answer(1, digest("h"), digest("g1"))
    receive(label, 1, "z1", lab.activation(1, digest("z1")))
    history = answer(label, 1)
    with pytest.raises(OrderError, match="the answer to step 2 came, expected that to step 1"):
        lab.on_answer(2, history, digest("g1"))
    lab.on_answer(1, history, digest("g1"))
    with pytest.raises(OrderError, match="the answer to step 1 came, but this party does not wait for it"):
        lab.on_answer(1, history, digest("g1"))
    lab.applied(1)
    with pytest.raises(OrderError, match="the answer to step 1 came, expected that to step 2"):
        lab.on_answer(1, history, digest("g1"))


# History and restart.


def test_the_history_is_a_chain_over_terms_steps_and_digests() -> None:
    label, lab = links()
    history = hashlib.sha256(TERMS.job_digest + b"lab" + b"r" * 32).digest()
    assert label.history == lab.history == history
    run(label, lab, range(1, 3))
    for step in (1, 2):
        chain = history + step.to_bytes(8, "little") + digest(f"z{step}") + digest(f"g{step}")
        history = hashlib.sha256(chain).digest()
    assert label.history == lab.history == history


def test_every_part_counts_in_the_history() -> None:
    base = [b"h" * 32, 1, b"z" * 32, b"g" * 32]
    changed = [[b"i" * 32, 1, *base[2:]], [b"h" * 32, 2, *base[2:]], [*base[:3], b"f" * 32], [*base[:2], *base[:1:-1]]]
    assert len({next_history(*parts) for parts in [base, *changed]}) == 5  # type: ignore[arg-type]
    terms = [TERMS, replace(TERMS, party="la"), replace(TERMS, job_digest=ROWS), replace(TERMS, rows_digest=ROWS)]
    assert len({start_of_history(t) for t in terms}) == 4


def test_a_history_needs_aligned_rows() -> None:
    with pytest.raises(ValueError, match="a history starts when the rows are aligned"):
        LabelPartyLink(UNALIGNED, STEPS)


def test_two_sides_go_on_from_their_states() -> None:
    label, lab = links()
    run(label, lab, range(1, 3))
    label2, lab2 = LabelPartyLink[str](TERMS, STEPS, label.state()), NonlabelPartyLink(TERMS, STEPS, lab.state())
    assert label2.last_answer is None
    lab2.on_welcome(PROTOCOL, label2.on_greeting(lab2.greeting("0.9")))
    run(label2, lab2, range(3, 4))
    assert label2.finished
    assert label2.state() == lab2.state() == LinkState(3, lab2.history)


def test_P11_after_a_restart_the_answer_is_gone_and_who_missed_it_is_refused() -> None:
    label, lab = links()
    run(label, lab, range(1, 2))
    receive(label, 2, "z2", lab.activation(2, digest("z2")))
    answer(label, 2)
    restarted = LabelPartyLink[str](TERMS, STEPS, label.state())
    with pytest.raises(OrderError, match="has applied step 1, the label party has answered step 2"):
        restarted.on_greeting(lab.greeting("0.9"))
    with pytest.raises(OrderError, match="step 2 came, expected step 3"):
        receive(restarted, 2, "z2", lab.history)


# Mistakes of the code that drives a link.


def test_a_label_party_that_answers_out_of_turn_is_an_error() -> None:
    label, lab = links()
    with pytest.raises(ValueError, match="step 1 is not being computed"):
        label.seal(1, digest("g1"))
    receive(label, 1, "z1", lab.activation(1, digest("z1")))
    with pytest.raises(ValueError, match="step 2 is not being computed"):
        label.seal(2, digest("g2"))
    with pytest.raises(ValueError, match="the answer to step 1 is not sealed"):
        label.answered(1, "answer 1")


def test_a_nonlabel_party_that_acts_out_of_turn_is_an_error() -> None:
    label, lab = links()
    with pytest.raises(ValueError, match="step 2 may not be sent: step 0 of 3 is applied"):
        lab.activation(2, digest("z2"))
    history = lab.activation(1, digest("z1"))
    with pytest.raises(ValueError, match="step 1 was sent before with another activation"):
        lab.activation(1, digest("other"))
    with pytest.raises(ValueError, match="step 1 has no accepted answer to apply"):
        lab.applied(1)
    receive(label, 1, "z1", history)
    lab.on_answer(1, answer(label, 1), digest("g1"))
    with pytest.raises(ValueError, match="step 1 may not be sent"):
        lab.activation(1, digest("z1"))
    lab.applied(1)
    run(label, lab, range(2, STEPS + 1))
    with pytest.raises(ValueError, match="step 4 may not be sent: step 3 of 3 is applied"):
        lab.activation(4, digest("z4"))
