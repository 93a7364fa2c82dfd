"""Runs tests/transcripts/*.txt: commands, `----`, and the exact output of two real links.

After a change that is meant, REWRITE_TRANSCRIPTS=1 writes the new output into the files. Commit it only where
you understand what caused each difference.

    links steps=3 [SIDE.KEY=VALUE ...]  two sides; KEY: job, party, width, rows (how many), order (of the rows)
    open                          hello, deliver to=label, deliver to=lab
    step                          send, deliver to=label, answer, deliver to=lab
    hello | send [z=NAME] | answer    one message of lab, lab or the label party
    deliver to=SIDE               the oldest message on the way to SIDE arrives
    drop | duplicate to=SIDE      the oldest message gets lost, or comes twice
    edit to=SIDE KEY=VALUE ...    the oldest message is changed on the way
    break                         the stream breaks; what was on the way is lost
    save | restart SIDE           a checkpoint, and the process that starts again from it
    show                          where both sides stand

z1, g1, b1 stand for the activation, the gradient and the rows of the batch of step 1; a digest is shown by its
first four digits. After an error the stream has ended.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cutlayer.common.errors import ProtocolError
from cutlayer.common.handshake import PROTOCOL, Greeting, Terms
from cutlayer.common.history import LinkState
from cutlayer.label_party.session import AnswerAgain, Compute, LabelPartyLink
from cutlayer.nonlabel_party.session import NonlabelPartyLink

FOLDER = Path(__file__).parents[2] / "transcripts"
TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))

Frame = dict[str, Any]


def digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def shown(value: object) -> str:
    return value.hex()[:4] if isinstance(value, bytes) else str(value)


def line_of(frame: Frame) -> str:
    fields = " ".join(f"{key}={shown(value)}" for key, value in frame.items() if key not in ("to", "kind"))
    sender = "label" if frame["to"] == "lab" else "lab"
    return f"{sender} -> {frame['to']}  {frame['kind']} {fields}"


def version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


class World:
    """Two links, the messages on the way between them, and what the code around the links must do."""

    label: LabelPartyLink[Frame]
    lab: NonlabelPartyLink

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.saved: dict[str, LinkState] = {}
        self.remembered: dict[int, bytes] = {}  # the label party's: outlives its process

    def run(self, command: str) -> list[str]:
        name, *words = command.split()
        return list(getattr(self, f"do_{name}")(*words))

    # Commands.

    def do_links(self, *words: str) -> Iterator[str]:
        self.options = dict(word.split("=") for word in words)
        for side in ("label", "lab"):
            self.start(side, None)
        yield from self.do_show()

    def start(self, side: str, state: LinkState | None) -> None:
        terms, steps = self.terms(side), int(self.options["steps"])
        if side == "label":
            self.label = LabelPartyLink(terms, steps, state, self.remembered.get)
            self.computing: Frame | None = None
        else:
            self.lab = NonlabelPartyLink(terms, steps, state)
        self.end_stream()

    def end_stream(self) -> None:
        self.way: dict[str, list[Frame]] = {"label": [], "lab": []}
        self.waited_for = False

    def do_show(self) -> Iterator[str]:
        extra = f", extra queries {self.label.extra_queries}" if self.label.extra_queries else ""
        finished = {True: ", finished", False: ""}
        label, lab = self.label.state(), self.lab.state()
        yield f"label: answered {label.step}, history {shown(label.history)}{extra}{finished[self.label.finished]}"
        yield f"lab: applied {lab.step}, history {shown(lab.history)}{finished[self.lab.finished]}"

    def do_open(self) -> Iterator[str]:
        yield from self.do_hello()
        yield from self.do_deliver("to=label")
        if self.way["lab"]:
            yield from self.do_deliver("to=lab")

    def do_step(self) -> Iterator[str]:
        yield from self.do_send()
        yield from self.do_deliver("to=label")
        yield from self.do_answer()
        yield from self.do_deliver("to=lab")

    def do_hello(self) -> Iterator[str]:
        said = self.lab.greeting("1.0.0")
        yield from self.put(
            to="label",
            kind="Hello",
            protocol=".".join(map(str, said.protocol)),
            party=said.party,
            job=said.job_digest,
            width=said.cut_width,
            rows=said.rows_count,
            order=said.rows_digest,
            applied=said.applied_step,
            history=said.history,
        )

    def do_send(self, z: str = "") -> Iterator[str]:
        step = self.lab.applied_step + 1
        name = z.removeprefix("z=") or f"z{step}"
        history = self.lab.activation(step, digest(name))
        yield from self.put(to="label", kind="Activation", step=step, z=name, rows=f"b{step}", history=history)

    def do_answer(self) -> Iterator[str]:
        assert self.computing
        step, z, self.computing = self.computing["step"], self.computing["z"], None
        self.remembered[step] = digest(z)
        frame = {"to": "lab", "kind": "Answer", "step": step, "g": f"g{step}"}
        frame["history"] = self.label.seal(step, digest(frame["g"]))
        self.label.answered(step, frame)
        if self.waited_for:
            yield from self.put(**frame)
        else:
            yield f"label: step {step} is answered, but no stream waits: the answer is kept"

    def do_deliver(self, to: str) -> Iterator[str]:
        side = to.removeprefix("to=")
        frame = self.way[side].pop(0)
        try:
            yield from getattr(self, f"on_{frame['kind'].lower()}")(frame)
        except ProtocolError as error:
            yield f"{side} refuses, {type(error).__name__}: {error}"
            yield from self.do_break()

    def do_drop(self, to: str) -> Iterator[str]:
        yield f"lost: {line_of(self.way[to.removeprefix('to=')].pop(0))}"

    def do_duplicate(self, to: str) -> Iterator[str]:
        frame = self.way[to.removeprefix("to=")][0]
        yield from self.put(**frame)

    def do_edit(self, to: str, *words: str) -> Iterator[str]:
        frame = self.way[to.removeprefix("to=")][0]
        for key, value in (word.split("=") for word in words):
            kind = type(frame[key])
            frame[key] = digest(value) if kind is bytes else kind(value)
        yield f"changed: {line_of(frame)}"

    def do_break(self) -> Iterator[str]:
        self.end_stream()
        yield "the stream has ended"

    def do_save(self, side: str) -> Iterator[str]:
        self.saved[side] = (self.label if side == "label" else self.lab).state()
        yield f"{side}: saved step {self.saved[side].step}, history {shown(self.saved[side].history)}"

    def do_restart(self, side: str) -> Iterator[str]:
        self.start(side, self.saved[side])
        yield from self.do_show()

    # What a side does with a message.

    def on_hello(self, frame: Frame) -> Iterator[str]:
        next_step = self.label.on_greeting(
            Greeting(
                version(frame["protocol"]),
                "1.0.0",
                frame["party"],
                frame["job"],
                frame["width"],
                frame["rows"],
                frame["order"],
                frame["applied"],
                frame["history"],
            )
        )
        yield from self.put(to="lab", kind="Welcome", protocol=".".join(map(str, PROTOCOL)), next=next_step)

    def on_welcome(self, frame: Frame) -> Iterator[str]:
        self.lab.on_welcome(version(frame["protocol"]), frame["next"])
        yield "lab: welcome"

    def on_activation(self, frame: Frame) -> Iterator[str]:
        step = frame["step"]
        outcome = self.label.on_activation(
            step, digest(frame["z"]), digest(frame["rows"]), frame["history"], digest(f"b{step}")
        )
        if isinstance(outcome, AnswerAgain):
            yield f"label: step {step} is answered already: the same answer again"
            yield from self.put(**outcome.answer)
            return
        self.waited_for = True
        if isinstance(outcome, Compute):
            self.computing = frame
            yield f"label: computes step {step}"
        else:
            yield f"label: step {step} is being computed already: waits for its answer"

    def on_answer(self, frame: Frame) -> Iterator[str]:
        self.lab.on_answer(frame["step"], frame["history"], digest(frame["g"]))
        self.lab.applied(frame["step"])
        yield f"lab: applied step {frame['step']}"

    def put(self, **frame: Any) -> Iterator[str]:
        self.way[frame["to"]].append(frame)
        yield line_of(frame)

    def terms(self, side: str) -> Terms:
        def option(key: str, default: str) -> str:
            return self.options.get(f"{side}.{key}", default)

        return Terms(
            option("party", "lab"),
            digest(option("job", "job")),
            int(option("width", "16")),
            int(option("rows", "12")),
            digest(option("order", "order")),
        )


def replay(text: str) -> str:
    """The transcript with the output that the commands have now."""
    world, blocks = World(), []
    for block in text.strip().split("\n\n"):
        before, separator, _ = block.partition("\n----")
        output = [line for command in commands(before) for line in world.run(command)]
        blocks.append("\n".join([before, "----", *output]) if separator else block)
    return "\n\n".join(blocks) + "\n"


def commands(lines: str) -> Iterator[str]:
    for line in lines.splitlines():
        if line and not line.startswith("#"):
            yield line


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_P02_transcript(path: Path) -> None:
    expected = path.read_text()
    got = replay(expected)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(got)
    else:
        assert got == expected


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 16
