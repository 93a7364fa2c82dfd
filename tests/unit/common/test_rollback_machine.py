"""A label party and two others that crash at any moment: in the end every step was applied once, as without a crash.

The links and the admission of folders are the real ones. Around them is what the processes do, duty by duty.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from support.crash_model import EVERY, EXPECTED, NAMES, STEPS, Lab, Label, gradient, mix, terms

from cutlayer.common.errors import CutlayerError, ExtraQueryError
from cutlayer.common.handshake import PROTOCOL
from cutlayer.label_party.same_run import SameRun
from cutlayer.label_party.session import AnswerAgain, LabelPartyLink
from cutlayer.nonlabel_party.session import NonlabelPartyLink

ROWS = b"b" * 32

names = st.sampled_from(NAMES)
choices = st.integers(0, 9)


class Parties(RuleBasedStateMachine):
    """What may happen."""

    def __init__(self) -> None:
        super().__init__()
        self.label, self.labs = Label(), {name: Lab(name) for name in NAMES}
        self.eras = self.streams = 0
        self.wants_checkpoint = False
        self.up: dict[str, list[tuple[Any, ...]]] = {name: [] for name in NAMES}
        self.down: dict[str, list[tuple[Any, ...]]] = {name: [] for name in NAMES}
        self.answered_z: dict[tuple[str, int], set[bytes]] = {}
        self.same_run = SameRun(self.label, lambda: sorted(self.label.disk), lambda: None)  # type: ignore[arg-type]

    # Processes begin and die.

    @rule(name=names)
    def start(self, name: str) -> None:
        self.labs[name].alive = True

    @rule()
    def start_label(self) -> None:
        self.label.alive = True

    @rule(name=names, saves=st.booleans())
    def die(self, name: str, saves: bool) -> None:
        """By a crash; or because it gave up waiting, and then it saves what it has done."""
        lab = self.labs[name]
        if saves and lab.link is not None and not lab.accepted and lab.link.applied_step:
            lab.save()
        lab.lose_memory()
        self.break_stream(name)

    @rule(saves=st.booleans())
    def label_dies(self, saves: bool) -> None:
        label = self.label
        if saves and label.links and not label.stage and label.done:
            label.save(label.done, label.weights, {name: link.state() for name, link in label.links.items()})
        label.lose_memory()
        for name in NAMES:
            self.break_stream(name)

    @rule(name=st.sampled_from(["label", *NAMES]), saves=st.booleans())
    def die_and_come_back(self, name: str, saves: bool) -> None:
        if name == "label":
            self.label_dies(saves)
        else:
            self.die(name, saves)
        self.a_while_without_a_fault()

    @precondition(lambda self: self.label.disk)
    @rule()
    def power_of_the_label_party_fails(self) -> None:
        self.label_dies(saves=False)
        self.label.noted = {name: dict(noted) for name, noted in self.label.synced.items()}

    # What the parties do.

    @rule(name=names)
    def connect(self, name: str) -> None:
        lab, label = self.labs[name], self.label
        if not lab.alive or not label.alive or lab.stream is not None:
            return
        self.break_stream(name)
        if lab.link is None or not label.links or lab.era != label.era:  # the latter is told to begin again
            lab.link, lab.accepted, lab.unsaved = None, None, False
            self.open_stream(lab)
            self.up[name].append((lab.stream, "ids", tuple(sorted(lab.disk))))
        elif not lab.accepted:
            lab.link.on_welcome(PROTOCOL, label.links[name].on_greeting(lab.link.greeting("1")))
            self.open_stream(lab)

    def open_stream(self, lab: Lab) -> None:
        self.streams += 1
        lab.stream = self.streams

    @rule(name=names)
    def send(self, name: str) -> None:
        lab = self.labs[name]
        if lab.link is None or lab.stream is None or lab.link.finished or lab.accepted or lab.unsaved:
            return
        step = lab.link.applied_step + 1
        z = mix("z", name, step, lab.weights)
        self.up[name].append((lab.stream, "z", step, lab.link.activation(step, z), z))

    @rule(name=names)
    def apply(self, name: str) -> None:
        lab = self.labs[name]
        if lab.accepted and lab.link:
            step, g, lab.unsaved = lab.accepted
            lab.weights, lab.accepted = mix(lab.weights, g), None
            lab.journal.append(step)
            lab.link.applied(step)

    @rule(name=names)
    def save(self, name: str) -> None:
        if self.labs[name].unsaved:
            self.labs[name].save()

    @rule()
    def ask_for_a_checkpoint(self) -> None:
        """As a signal does, or the clock."""
        self.wants_checkpoint = True

    @rule()
    def label_goes_on(self) -> None:
        """The next of the duties of a step, once all have sent it: train and seal, save, note, answer."""
        if self.label.links and self.label.got.keys() == set(NAMES):
            (self.seal, self.save_label, self.note, self.publish)[self.label.stage]()

    def seal(self) -> None:
        label, step = self.label, self.label.done + 1
        label.due = step % EVERY == 0 or step == STEPS or self.wants_checkpoint
        self.wants_checkpoint = False
        for name, link in label.links.items():
            g = gradient(name, label.weights, label.got)
            label.answers[name] = ("g", step, link.seal(step, g), g, label.due)
        label.weights = mix(label.weights, sorted(label.got.items()))
        label.journal.append(step)
        label.stage = 1

    def save_label(self) -> None:
        if self.label.due:
            states = {name: link.sealed_state() for name, link in self.label.links.items()}
            self.label.save(self.label.done + 1, self.label.weights, states)
        self.label.stage = 2

    def note(self) -> None:
        for name, z in self.label.got.items():
            self.label.noted[name][self.label.done + 1] = z
        self.label.stage = 3

    def publish(self) -> None:
        label = self.label
        label.done += 1
        for name, link in label.links.items():
            link.answered(label.done, label.answers[name])
            self.answered_z.setdefault((name, label.done), set()).add(label.got[name])
            if (stream := self.labs[name].stream) is not None:
                self.down[name].append((stream, *label.answers[name]))
        label.got, label.stage = {}, 0

    def ask_for_another_answer(self, name: str) -> None:
        """A curious party that has gone back sends another z for a step that it was answered."""
        link, step = self.label.links[name], self.label.done + 1
        if step in self.label.noted[name]:
            with pytest.raises(ExtraQueryError):
                link.on_activation(step, mix("other"), ROWS, link.history, ROWS)

    # What the network does.

    @rule(name=names, choice=choices, twice=st.booleans())
    def deliver_up(self, name: str, choice: int, twice: bool) -> None:
        if self.up[name] and self.label.alive:
            stream, kind, *content = self.take(self.up[name], choice, twice)
            if stream != self.labs[name].stream:  # an older one is fenced off
                return
            (self.on_ids if kind == "ids" else self.on_activation)(name, *content)

    def on_ids(self, name: str, durable_steps: tuple[int, ...]) -> None:
        label = self.label
        self.same_run.require(name, durable_steps, b"")  # whatever has crashed, nobody's folder is refused
        if label.links and label.done == label.resumed:  # no step was answered: nothing is lost
            self.down[name].append((self.labs[name].stream, "rows", label.resumed, label.era))
            return
        if label.links:  # this party has been away: all go back
            label.links, label.got, label.stage, label.ids = {}, {}, 0, {}
            for other in set(NAMES) - {name}:
                self.break_stream(other)
        label.ids[name] = durable_steps
        if label.ids.keys() == set(NAMES):
            self.agree()

    def agree(self) -> None:
        label = self.label
        common = set(label.disk).intersection(*label.ids.values())
        label.resumed = label.done = max(common, default=0)
        if label.done not in label.disk:
            label.save(0, b"start", {})
        label.weights, states, journal = label.disk[label.done]
        label.journal = list(journal)
        label.disk.drop_after(label.done)
        self.eras += 1
        label.era, label.ids = self.eras, {}
        for name in NAMES:
            label.links[name] = LabelPartyLink(terms(name), STEPS, states.get(name), label.noted[name].get)
            if (stream := self.labs[name].stream) is not None:
                self.down[name].append((stream, "rows", label.done, label.era))
            self.ask_for_another_answer(name)

    def on_activation(self, name: str, step: int, history: bytes, z: bytes) -> None:
        link = self.label.links.get(name)
        if link is None:
            return
        try:
            outcome = link.on_activation(step, z, ROWS, history, ROWS)
        except CutlayerError:
            self.break_stream(name)
            return
        if isinstance(outcome, AnswerAgain):
            self.down[name].append((self.labs[name].stream, *outcome.answer))
        else:
            self.label.got[name] = z

    @rule(name=names, choice=choices, twice=st.booleans())
    def deliver_down(self, name: str, choice: int, twice: bool) -> None:
        lab = self.labs[name]
        if not self.down[name] or not lab.alive:
            return
        stream, kind, *content = self.take(self.down[name], choice, twice)
        if stream == lab.stream:
            (self.on_rows if kind == "rows" else self.on_answer)(lab, *content)

    def on_rows(self, lab: Lab, resume_step: int, era: int) -> None:
        if lab.link is not None:
            return
        lab.weights, state, journal = lab.disk.get(resume_step, (b"start", None, []))
        assert resume_step == 0 or resume_step in lab.disk
        assert not self.label.last(lab.name) or lab.disk  # what was answered can be gone back to
        lab.journal, lab.era = list(journal), era
        lab.disk.drop_after(resume_step)
        lab.link = NonlabelPartyLink(terms(lab.name), STEPS, state)
        lab.unsaved = resume_step not in lab.disk

    def on_answer(self, lab: Lab, step: int, history: bytes, g: bytes, due: bool) -> None:
        if lab.link is None:
            return
        try:
            lab.link.on_answer(step, history, g)
            lab.accepted = step, g, due
        except CutlayerError:
            self.break_stream(lab.name)

    @rule(name=names)
    def break_stream(self, name: str) -> None:
        self.labs[name].stream = None
        self.up[name].clear()
        self.down[name].clear()

    @rule(name=names, choice=choices)
    def lose(self, name: str, choice: int) -> None:
        for line in (self.up[name], self.down[name]):
            if line:
                self.take(line, choice, keep=False)

    @staticmethod
    def take(line: list[tuple[Any, ...]], choice: int, keep: bool) -> tuple[Any, ...]:
        place = choice % len(line)
        return line[place] if keep else line.pop(place)

    @rule()
    def a_while_without_a_fault(self) -> None:
        self.start_label()
        for name in NAMES:
            self.start(name)
            self.connect(name)
            self.deliver_up(name, 0, twice=False)
        for name in NAMES:
            self.deliver_down(name, 0, twice=False)
            self.send(name)
            self.deliver_up(name, 0, twice=False)
        while self.label.links and self.label.got.keys() == set(NAMES):
            self.label_goes_on()
        for name in NAMES:
            self.deliver_down(name, 0, twice=False)
            self.apply(name)
            self.save(name)

    # What must hold.

    @invariant()
    def every_step_was_applied_once_and_in_order(self) -> None:
        assert self.label.journal == list(range(1, len(self.label.journal) + 1))
        for lab in self.labs.values():
            assert lab.journal == list(range(1, len(lab.journal) + 1))

    @invariant()
    def a_step_has_answers_to_one_activation_only(self) -> None:
        assert all(len(digests) == 1 for digests in self.answered_z.values())

    def teardown(self) -> None:
        """Once nothing fails any more, the run comes to its end, and that is the undisturbed one."""
        for name in NAMES:
            self.break_stream(name)
        for _ in range(4 * STEPS):
            self.a_while_without_a_fault()
        assert self.label.done == STEPS
        assert {"label": self.label.weights, **{name: lab.weights for name, lab in self.labs.items()}} == EXPECTED
        for lab in self.labs.values():
            assert lab.link is not None
            assert lab.journal == list(range(1, STEPS + 1))
            assert lab.link.history == self.label.links[lab.name].history


def test_P02_every_step_is_applied_exactly_once_whoever_crashes() -> None:
    run_state_machine_as_test(Parties, settings=settings(max_examples=120, stateful_step_count=50, deadline=None))
