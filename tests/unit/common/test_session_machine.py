"""Two links with everything between them that can go wrong, short of changed bytes: each step is done exactly once."""

import hashlib
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from cutlayer.common.errors import OrderError
from cutlayer.common.handshake import PROTOCOL, Terms
from cutlayer.common.history import LinkState
from cutlayer.label_party.session import AnswerAgain, Compute, LabelPartyLink
from cutlayer.nonlabel_party.session import NonlabelPartyLink

TERMS = Terms("lab", b"j" * 32, 16, 455, b"r" * 32)
STEPS = 5
CHECKPOINT_EVERY = 2

T = TypeVar("T")
choices = st.integers(0, 9)


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True)
class Activation:
    step: int
    history: bytes


@dataclass(frozen=True, eq=False)
class Answer:
    step: int
    history: bytes


class TwoLinks(RuleBasedStateMachine):
    """Drives both sides as their drivers must; the journals are what the optimizers would have seen."""

    def __init__(self) -> None:
        super().__init__()
        start = LinkState(0, NonlabelPartyLink(TERMS, STEPS).history)
        self.saved_by_label, self.saved_by_lab = {0: start}, {0: start}
        self.computed: list[int] = []
        self.applied: list[int] = []
        self.answers: dict[int, Answer] = {}
        self.start_both(0)

    def start_both(self, step: int) -> None:
        self.label = LabelPartyLink[Answer](TERMS, STEPS, self.saved_by_label[step])
        self.lab = NonlabelPartyLink(TERMS, STEPS, self.saved_by_lab[step])
        self.open = False
        self.computing = self.accepted = self.extra_queries = 0
        self.to_label: list[Activation] = []
        self.to_lab: list[Answer] = []

    # What the parties do.

    @precondition(lambda self: not self.open)
    @rule(welcome_is_lost=st.booleans())
    def open_stream(self, welcome_is_lost: bool) -> None:
        next_step = self.label.on_greeting(self.lab.greeting("1"))
        if not welcome_is_lost:
            self.lab.on_welcome(PROTOCOL, next_step)
            self.open = True

    @precondition(lambda self: self.open and not self.lab.finished and not self.accepted)
    @rule()
    def send(self) -> None:
        step = self.lab.applied_step + 1
        self.to_label.append(Activation(step, self.lab.activation(step, digest(f"z{step}"))))

    @precondition(lambda self: self.computing)
    @rule()
    def finish_computing(self) -> None:
        step, self.computing = self.computing, 0
        self.answers[step] = Answer(step, self.label.seal(step, digest(f"g{step}")))
        self.label.answered(step, self.answers[step])
        self.to_lab.append(self.answers[step])
        if step % CHECKPOINT_EVERY == 0:
            self.saved_by_label[step] = self.label.state()

    @precondition(lambda self: self.accepted)
    @rule()
    def apply(self) -> None:
        step, self.accepted = self.accepted, 0
        self.applied.append(step)
        self.lab.applied(step)
        if step % CHECKPOINT_EVERY == 0:
            self.saved_by_lab[step] = self.lab.state()

    @precondition(lambda self: not self.lab.finished)
    @rule()
    def finish_step(self) -> None:
        """Do what is left of a step while nothing goes wrong; what is still on the way stays there, to come late."""
        if self.accepted:
            return self.apply()
        if not self.open:
            self.open_stream(welcome_is_lost=False)
        self.send()
        self.deliver_to_label(-1, twice=False)
        if self.computing:
            self.finish_computing()
        self.deliver_to_lab(-1, twice=False)
        return self.apply()

    @rule(step=st.integers(0, STEPS + 2))
    def ask_for_another_answer(self, step: int) -> None:
        """A curious party's second z for a step; the first one for a step is not its matter."""
        if step == self.label.answered_step + 1 and not self.computing and not self.label.finished:
            return
        before = self.label.state()
        with pytest.raises(OrderError):
            self.label.on_activation(step, digest("other"), b"b" * 32, before.history, b"b" * 32)
        assert self.label.state() == before
        answered = step == self.label.answered_step and self.label.last_answer is not None
        self.extra_queries += answered or step == (self.computing or -1)

    # What the network does.

    @precondition(lambda self: self.to_label)
    @rule(choice=choices, twice=st.booleans())
    def deliver_to_label(self, choice: int, twice: bool) -> None:
        frame = self.take(self.to_label, choice, twice)
        before = self.label.state()
        try:
            outcome = self.label.on_activation(
                frame.step, digest(f"z{frame.step}"), b"b" * 32, frame.history, b"b" * 32
            )
        except OrderError:
            self.open = False
            assert self.label.state() == before
            return
        if isinstance(outcome, Compute):
            self.computed.append(frame.step)
            self.computing = frame.step
        elif isinstance(outcome, AnswerAgain):
            assert outcome.answer is self.answers[frame.step]
            self.to_lab.append(outcome.answer)
        else:
            assert outcome.step == self.computing

    @precondition(lambda self: self.to_lab)
    @rule(choice=choices, twice=st.booleans())
    def deliver_to_lab(self, choice: int, twice: bool) -> None:
        frame = self.take(self.to_lab, choice, twice)
        before = self.lab.state()
        try:
            self.lab.on_answer(frame.step, frame.history, digest(f"g{frame.step}"))
        except OrderError:
            self.open = False
        else:
            self.accepted = frame.step
        assert self.lab.state() == before

    @precondition(lambda self: self.to_label or self.to_lab)
    @rule(choice=choices)
    def lose(self, choice: int) -> None:
        frames: list[Any] = self.to_label or self.to_lab
        frames.pop(choice % len(frames))

    @precondition(lambda self: self.open and self.label.answered_step)
    @rule(frames_are_lost=st.booleans())
    def break_stream(self, frames_are_lost: bool) -> None:
        self.open = False
        if frames_are_lost:
            self.to_label.clear()
            self.to_lab.clear()

    @precondition(lambda self: len(self.saved_by_lab) > 1)
    @rule()
    def crash_and_go_on_from_the_newest_common_checkpoint(self) -> None:
        step = max(self.saved_by_label.keys() & self.saved_by_lab.keys())
        del self.computed[step:], self.applied[step:]
        self.answers = {number: answer for number, answer in self.answers.items() if number <= step}
        self.start_both(step)

    @staticmethod
    def take(frames: list[T], choice: int, keep: bool) -> T:
        index = choice % len(frames)
        return frames[index] if keep else frames.pop(index)

    # What must hold.

    @invariant()
    def every_step_is_done_once_and_in_order(self) -> None:
        doing = [self.computing] if self.computing else []
        assert self.computed == [*range(1, self.label.answered_step + 1), *doing]
        assert self.applied == [*range(1, self.lab.applied_step + 1)]

    @invariant()
    def the_sides_are_at_most_one_answer_apart(self) -> None:
        assert self.label.answered_step - self.lab.applied_step in (0, 1)

    @invariant()
    def equal_steps_have_equal_histories(self) -> None:
        if self.label.answered_step == self.lab.applied_step:
            assert self.label.history == self.lab.history

    @invariant()
    def only_second_activations_count_as_extra_queries(self) -> None:
        assert self.label.extra_queries == self.extra_queries

    def teardown(self) -> None:
        """Once the network behaves, the run comes to its end."""
        for _ in range(STEPS + 1):  # one more where the last answer was accepted, but not yet applied
            if not self.lab.finished:
                self.finish_step()
        assert self.label.finished
        assert self.lab.finished
        self.every_step_is_done_once_and_in_order()
        self.equal_steps_have_equal_histories()


def test_P02_each_step_is_done_exactly_once() -> None:
    run_state_machine_as_test(TwoLinks, settings=settings(max_examples=200, stateful_step_count=40, deadline=None))
