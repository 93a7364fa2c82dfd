"""What goes wrong with a line as data: after which message, what happens, and what must come of it.

    Scenario(after=("answer", 5), do=(stall(3), reset()), expect="resumed")

A trigger is a function of the program that a party calls right before it sends that message, so that a scenario works
over TLS too, and the message itself is the first that meets the fault.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from faults.proxy import Direction, Proxy

from cutlayer.common.errors import CutlayerError
from cutlayer.label_party import server
from cutlayer.label_party.exchange import Exchange
from cutlayer.nonlabel_party import client
from cutlayer.nonlabel_party.session import NonlabelPartyLink
from support.runs import Run
from support.threads import Outcome, Parties

Frame = Literal["ids", "held", "hello", "welcome", "activation", "answer", "finish", "done"]
DISTURBED = "lab"  # whose line it is


@dataclass(frozen=True)
class Fault:
    """Something that happens to a line.

    Attributes:
        begin: makes it so.
        end: takes it back `seconds` later; None where it stays, or is over at once.
    """

    name: str
    begin: Callable[[Proxy], None]
    end: Callable[[Proxy], None] | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name} {self.seconds:g} s" if self.seconds else self.name


def _attribute(name: str, value: Any, usual: Any, seconds: float, told: str) -> Fault:
    def put(to: Any) -> Callable[[Proxy], None]:
        return lambda proxy: setattr(proxy, name, to)

    return Fault(told, put(value), put(usual) if seconds else None, seconds)


def stall(seconds: float) -> Fault:
    """Nothing goes through for a while, nothing is lost: TCP sends again what the network drops."""
    return _attribute("stalled", True, False, seconds, "stall")


def blackhole(seconds: float = 0.0) -> Fault:
    """What is sent vanishes, for good where `seconds` is 0; then TCP gives up connections that miss something."""

    def end(proxy: Proxy) -> None:
        proxy.blackhole = False
        proxy.reset()

    return Fault("blackhole", lambda proxy: setattr(proxy, "blackhole", True), end if seconds else None, seconds)


def delay(each_s: float, seconds: float = 0.0) -> Fault:
    """Every chunk comes later."""
    return _attribute("delay_s", each_s, 0.0, seconds, f"delay of {each_s:g} s")


def jitter(each_s: float, seconds: float = 0.0) -> Fault:
    """Every chunk comes later, by chance."""
    return _attribute("jitter_s", each_s, 0.0, seconds, f"jitter of {each_s:g} s")


def slow(bytes_per_s: float, seconds: float = 0.0) -> Fault:
    """A narrow line."""
    return _attribute("bytes_per_s", bytes_per_s, None, seconds, f"{bytes_per_s:g} bytes/s")


def cut() -> Fault:
    """Connections end in good order."""
    return Fault("cut", Proxy.cut)


def reset() -> Fault:
    """Connections are reset, on both sides."""
    return Fault("reset", Proxy.reset)


def half_open(lost: Direction) -> Fault:
    """One side is reset, the other hears nothing of it; `up`: the non-label party's is."""
    return Fault(f"half open, {lost} lost", lambda proxy: proxy.half_open(lost))


def strand(seconds: float) -> Fault:
    """The non-label party is reset; what it has sent comes in later, after what it sends on its next connection."""
    return Fault(f"strand for {seconds:g} s", lambda proxy: proxy.strand(seconds))


def wait(seconds: float) -> Fault:
    """A pause between two faults."""
    return Fault("wait", lambda proxy: None, lambda proxy: None, seconds)


def damage(direction: Direction, how: Literal["flip", "double", "lose"]) -> Fault:
    """One chunk is changed in a way that TCP would not let pass."""

    def begin(proxy: Proxy) -> None:
        def edit(chunk: bytes, offset: int) -> bytes:
            proxy.edits.pop(direction, None)
            place = len(chunk) // 2
            flipped = chunk[:place] + bytes([chunk[place] ^ 0x10]) + chunk[place + 1 :]
            return {"flip": flipped, "double": chunk + chunk, "lose": b""}[how]

        proxy.edits[direction] = edit

    return Fault(f"{how} a chunk {direction}", begin)


@dataclass(frozen=True)
class Scenario:
    """A run with faults on one line.

    Attributes:
        after: the message before which it begins, and the step where the message has one.
        expect: `resumed`: the same bits as without; `failure`: a clear end of both; `either` of them.
        tls: whether the line has TLS.
        parties: non-label parties; only the line of the first is disturbed.
        timeouts: other than the usual ones of scenarios.
    """

    after: tuple[Frame, int]
    do: tuple[Fault, ...]
    expect: Literal["resumed", "failure", "either"] = "resumed"
    tls: bool = False
    parties: tuple[str, ...] = (DISTURBED,)
    timeouts: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        frame, step = self.after
        line = f"{' + '.join(self.parties)}{', tls' if self.tls else ''}"
        return f"{line}: after {frame} {step}: {', '.join(map(str, self.do))} -> {self.expect}"


@contextmanager
def _trigger(after: tuple[Frame, int], fire: Callable[[], None]) -> Iterator[None]:
    """Call `fire` once, in the thread that is about to send the message `after`."""
    frame, step = after
    owner, name = _SENDERS[frame]
    before = getattr(owner, name)
    fired = threading.Event()

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        meant = not fired.is_set() and _is_meant(frame, step, args)
        result = before(*args, **kwargs) if frame == "answer" else None
        if meant:
            fired.set()
            fire()
        return result if frame == "answer" else before(*args, **kwargs)

    setattr(owner, name, wrapped)
    try:
        yield
    finally:
        setattr(owner, name, before)
    assert fired.is_set(), f"{frame} {step} never came"


_SENDERS: dict[Frame, tuple[Any, str]] = {
    "ids": (client, "id_frames"),
    "held": (server, "held_frames"),
    "hello": (NonlabelPartyLink, "greeting"),
    "welcome": (server, "welcome"),
    "activation": (NonlabelPartyLink, "activation"),
    "answer": (Exchange, "wait_answer"),
    "finish": (client.LabelPartyClient, "finish"),
    "done": (Exchange, "confirm"),
}


def _is_meant(frame: Frame, step: int, args: tuple[Any, ...]) -> bool:
    if frame == "activation":
        return bool(args[0].terms.party == DISTURBED and args[1] == step)
    if frame == "answer":
        return bool(args[1].party == DISTURBED and args[2] == step)
    return True


@dataclass
class Played:
    """How a scenario went."""

    outcome: Outcome
    proxy: Proxy
    seconds: float


def play(folder: Path, scenario: Scenario, run: Run, timeout: float = 60) -> Played:
    """Run all parties to their end through the scenario."""
    proxies: list[Proxy] = []

    def connect(address: str) -> str:
        proxies.append(Proxy(address))
        return proxies[-1].address

    def fire() -> None:
        begun = threading.Event()
        threading.Thread(target=_do, args=(scenario.do, proxies[0], begun), daemon=True).start()
        begun.wait()

    began = time.monotonic()
    with _trigger(scenario.after, fire):
        parties = Parties(folder, run, connect=connect, through=(DISTURBED,))
        try:
            outcome = parties.wait(timeout)
        finally:
            proxies[0].close()
    return Played(outcome, proxies[0], time.monotonic() - began)


def _do(faults: tuple[Fault, ...], proxy: Proxy, begun: threading.Event) -> None:
    for fault in faults:
        fault.begin(proxy)
        begun.set()
        if fault.end is not None:
            time.sleep(fault.seconds)
            fault.end(proxy)


def require(scenario: Scenario, played: Played, undisturbed: Outcome) -> None:
    """What the scenario expects has come of it."""
    outcome = played.outcome
    if any(outcome.errors.values()) and scenario.expect != "resumed":
        _require_clear_failure(outcome)
        return
    outcome.require_success()
    assert scenario.expect != "failure"
    assert traces(outcome) == traces(undisturbed)


def traces(outcome: Outcome) -> dict[str, Any]:
    """What a run leaves that no fault may change: weights, histories, figures."""
    left: dict[str, Any] = {"metrics": (outcome.out / "metrics.jsonl").read_text()}
    for party in outcome.errors:
        left[f"{party} weights"] = outcome.weights(party)
        left[f"{party} history"] = json.loads((outcome.out / party / "party.json").read_text())["history"]
    return left


def _require_clear_failure(outcome: Outcome) -> None:
    """Every party that failed says whom it lost, and where."""
    for party, error in outcome.errors.items():
        if error is None:
            continue
        assert isinstance(error, CutlayerError), repr(error)
        peer = (f"party {DISTURBED!r}",) if party == "label_party" else ("label party", "the answer to step")
        where = ("step", "while rows were being aligned", "within", "ended the session")
        assert any(words in str(error) for words in peer), f"{party}: {error}"
        assert any(words in str(error) for words in where), f"{party}: {error}"


def by_chance(draw: random.Random, steps: int) -> Scenario:
    """A scenario that should end well, or clearly."""
    seconds = draw.choice([0.1, 0.5, 1.5, 3.0, 5.0])
    direction: Direction = draw.choice(["up", "down"])
    faults = [
        lambda: stall(seconds),
        lambda: blackhole(seconds),
        lambda: delay(draw.choice([0.02, 0.1, 0.4]), seconds),
        lambda: jitter(draw.choice([0.05, 0.3]), seconds),
        lambda: slow(draw.choice([16_384, 65_536, 262_144]), seconds),
        cut,
        reset,
        lambda: half_open(direction),
        lambda: strand(min(seconds, 3.0)),
        lambda: damage(direction, draw.choice(["flip", "double", "lose"])),
        lambda: wait(min(seconds, 1.5)),
    ]
    do = tuple(draw.choice(faults)() for _ in range(draw.randint(1, 5)))
    frame: Frame = draw.choice([*_SENDERS, "activation", "answer", "activation", "answer"])
    return Scenario(
        after=(frame, draw.randint(1, steps) if frame in ("activation", "answer") else 0),
        do=do,
        expect="either" if any("chunk" in fault.name for fault in do) else "resumed",
        tls=draw.random() < 0.5,
        parties=(DISTURBED, "bank") if draw.random() < 0.4 else (DISTURBED,),
    )
