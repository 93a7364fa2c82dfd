"""Every state in which a loss of power may leave a folder while code writes into it.

The model is that of journaling file systems, taken at its worst:

- what was written to a file since its last fsync may be there in full, by half or not at all;
- a name that was made, removed or moved since the last fsync of its folder is as before or as after, each by itself;
- moving a name is one change: never both names, never none.

What happens is seen by looking at the folder before and after each call that syncs, names or removes something.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_CALLS = ("fsync", "fdatasync", "rename", "replace", "mkdir", "unlink", "rmdir", "link", "ftruncate")
_ALL_SUBSETS_UP_TO = 6
_ROOT = 0

Tree = dict[int, dict[str, int]]  # folder -> name -> what has it; folders and files have numbers
Contents = dict[int, bytes]
State = tuple[tuple[str, bytes | None], ...]  # path below the folder -> bytes; None: a folder


class Change(NamedTuple):
    """One name in one folder: `before` loses it, `after` gets it."""

    what: int
    before: tuple[int, str] | None
    after: tuple[int, str] | None


@dataclass
class Recorder:
    """Watches `folder`, which exists, while the context of `watch` lasts."""

    folder: Path
    states: dict[State, None] = field(default_factory=dict)  # in the order in which they became possible

    def __post_init__(self) -> None:
        self._numbers: dict[int, int] = {os.stat(self.folder).st_ino: _ROOT}
        self._next = itertools.count(_ROOT + 1)
        self._folders = {_ROOT}
        self._now: Tree = {_ROOT: {}}
        self._contents: Contents = {}
        self._pending: list[Change] = []
        self._look()  # what is there already is safe
        self._durable = {number: dict(names) for number, names in self._now.items()}
        self._safe = dict(self._contents)
        self._pending = []

    def settled(self) -> set[State]:
        """The states that are possible now."""
        self._look()
        return set(self._possible())

    def hook(self, patch: pytest.MonkeyPatch) -> None:
        """Look before and after each call that matters."""
        for name in _CALLS:
            patch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._note()
            result = call(*args, **kwargs)
            self._look()
            if name in ("fsync", "fdatasync"):
                self._on_sync(os.fstat(args[0]).st_ino)
            self._note()
            return result

        return watched

    def _note(self) -> None:
        self._look()
        self.states.update(dict.fromkeys(self._possible()))

    def _on_sync(self, inode: int) -> None:
        number = self._numbers.get(inode)
        if number is None:
            return
        if number not in self._folders:
            self._safe[number] = self._contents[number]
            return
        self._durable[number] = dict(self._now[number])
        self._pending = [c for c in self._pending if number not in _folders_of(c)]

    def _look(self) -> None:
        """Take in what has changed since the last look."""
        before = {(folder, name): what for folder, names in self._now.items() for name, what in names.items()}
        self._now, old = {_ROOT: {}}, dict(self._numbers)
        self._numbers = {os.stat(self.folder).st_ino: _ROOT}
        self._walk(self.folder, _ROOT, old, set(before.values()))
        after = {(folder, name): what for folder, names in self._now.items() for name, what in names.items()}
        for place in [p for p, what in before.items() if after.get(p) != what]:
            what = before[place]
            moved = next((p for p, w in after.items() if w == what and before.get(p) != what), None)
            if moved or place not in after:  # else another has moved there, which is one change
                self._pending.append(Change(what, place, moved))
        moved_to = {c.after for c in self._pending}
        for place, what in after.items():
            if before.get(place) != what and place not in moved_to:
                self._pending.append(Change(what, None, place))

    def _walk(self, path: Path, number: int, old: dict[int, int], known: set[int]) -> None:
        for entry in sorted(path.iterdir()):
            found = os.lstat(entry)
            child = old.get(found.st_ino, -1)
            if child not in known:  # an inode that was freed is given out again
                child = next(self._next)
            self._numbers[found.st_ino] = child
            self._now[number][entry.name] = child
            if stat.S_ISDIR(found.st_mode):
                self._folders.add(child)
                self._now[child] = {}
                self._walk(entry, child, old, known)
            else:
                self._contents[child] = entry.read_bytes()

    def _possible(self) -> Iterator[State]:
        for chosen in _subsets(self._pending):
            tree = {number: dict(names) for number, names in self._durable.items()}
            if all(_apply(change, tree) for change in chosen):
                for part in (0.0, 0.5, 1.0):
                    yield tuple(self._paths(tree, _ROOT, "", part))

    def _paths(self, tree: Tree, number: int, prefix: str, part: float) -> Iterator[tuple[str, bytes | None]]:
        for name, child in sorted(tree.get(number, {}).items()):
            if child in self._folders:
                yield prefix + name, None
                yield from self._paths(tree, child, f"{prefix}{name}/", part)
            else:
                yield prefix + name, self._content(child, part)

    def _content(self, number: int, part: float) -> bytes:
        content, safe = self._contents[number], self._safe.get(number, b"")
        if content == safe or part == 1.0:
            return content
        return safe if part == 0.0 else content[: (len(safe) + len(content)) // 2]


def _folders_of(change: Change) -> set[int]:
    return {place[0] for place in (change.before, change.after) if place}


def _subsets(changes: list[Change]) -> Iterator[list[Change]]:
    if len(changes) <= _ALL_SUBSETS_UP_TO:
        for chosen in itertools.product([False, True], repeat=len(changes)):
            yield [change for change, there in zip(changes, chosen, strict=True) if there]
        return
    for length in range(len(changes) + 1):  # too many for all: in order, and in order but for one
        yield changes[:length]
        yield changes[:length] + changes[length + 1 :]


def _apply(change: Change, tree: Tree) -> bool:
    """Whether the change is possible in `tree`, where it is made."""
    if change.before:
        folder, name = change.before
        if tree.get(folder, {}).get(name) != change.what:
            return False
        del tree[folder][name]
    if change.after:
        tree.setdefault(change.after[0], {})[change.after[1]] = change.what
    return True


def materialise(state: State, folder: Path) -> Path:
    """Make `folder` as `state` has it."""
    folder.mkdir(parents=True)
    for path, content in state:
        if content is None:
            (folder / path).mkdir(exist_ok=True)
        else:
            (folder / path).write_bytes(content)
    return folder


def record(folder: Path, work: Callable[[], object]) -> tuple[list[State], set[State]]:
    """Do `work`; all states of `folder` that were possible meanwhile, and those that are after it."""
    recorder = Recorder(folder)
    with pytest.MonkeyPatch.context() as patch:
        recorder.hook(patch)
        work()
    return list(recorder.states), recorder.settled()
