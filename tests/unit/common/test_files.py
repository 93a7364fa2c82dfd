"""common/files.py: whole or absent files, private folders, the lock, secrets."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.common.errors import StorageError, UserError
from cutlayer.common.files import DirectoryLock, load_secret, private_folder, write_atomically, write_json

HOLD_LOCK = """
import sys
from pathlib import Path
from cutlayer.common.files import DirectoryLock
with DirectoryLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def small_files_only() -> Iterator[None]:
    """No file may grow beyond 4 KiB, as on a full disk. Short, for the tests' own output may be one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock of `tmp_path` until its stdin is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


@given(before=st.binary(max_size=50) | st.none(), after=st.binary(max_size=50), bits=st.sampled_from([0o644, 0o600]))
def test_write_replaces_whatever_was_there(
    tmp_path_factory: pytest.TempPathFactory, before: bytes | None, after: bytes, bits: int
) -> None:
    path = tmp_path_factory.mktemp("write") / "file"
    if before is not None:
        path.write_bytes(before)
    write_atomically(path, after, bits)
    assert path.read_bytes() == after
    assert mode(path) == bits
    assert os.listdir(path.parent) == ["file"]


def test_text_is_written_as_utf_8(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", "größe")
    assert (tmp_path / "file").read_bytes() == "größe".encode()


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"old")
    with small_files_only(), pytest.raises(StorageError, match="file: cannot be written .File too large.; raise the"):
        write_atomically(tmp_path / "file", bytes(8192))
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_rename_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageError, match="taken: cannot be written .Is a directory.; see to this disk"):
        write_atomically(tmp_path / "taken", b"data")
    assert os.listdir(tmp_path) == ["taken"]


def test_the_data_is_synced_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> Path:
        calls.append("rename")
        return real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_atomically(tmp_path / "file", b"data")
    assert calls == ["file", "rename", "folder"]


def test_json_round_trip_and_no_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "file", {"a": [1, None, 0.5]})
    assert json.loads((tmp_path / "file").read_text()) == {"a": [1, None, 0.5]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "file", {"a": float("nan")})
    assert json.loads((tmp_path / "file").read_text()) == {"a": [1, None, 0.5]}


def test_private_folder_is_the_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    assert private_folder(tmp_path / "open") == tmp_path / "open"
    assert mode(tmp_path / "open") == 0o700
    assert mode(private_folder(tmp_path / "a" / "b")) == 0o700


@pytest.mark.parametrize("inside", ["", "below"])
def test_private_folder_names_the_file_in_the_way(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file.* is in the way .*--out DIR"):
        private_folder(tmp_path / "file" / inside)


def test_private_folder_where_the_system_refuses() -> None:
    with pytest.raises(UserError, match=r"/proc/nothing: cannot make this folder .*--out DIR"):
        private_folder(Path("/proc/nothing"))


def test_a_second_process_is_refused_and_told_the_first(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"in use by process {holder.pid};"), DirectoryLock(tmp_path):
        pass


def test_the_lock_is_free_when_its_holder_is_killed(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    holder.kill()
    holder.wait()
    with DirectoryLock(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_the_lock_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        with DirectoryLock(tmp_path), pytest.raises(UserError, match=f"process {os.getpid()}"), DirectoryLock(tmp_path):
            pass


def test_a_secret_is_made_once_and_kept(tmp_path: Path) -> None:
    secret = load_secret(tmp_path / "secret")
    assert len(secret) == 32
    assert load_secret(tmp_path / "secret") == secret
    assert load_secret(tmp_path / "other") != secret
    assert mode(tmp_path / "secret") == 0o600
    assert sorted(os.listdir(tmp_path)) == ["other", "secret"]


def test_a_secret_made_by_many_at_once_is_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        secrets = set(pool.map(load_secret, [tmp_path / "secret"] * 32))
    assert secrets == {(tmp_path / "secret").read_bytes()}
    assert os.listdir(tmp_path) == ["secret"]


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_secret_of_another_length_is_refused(tmp_path: Path, length: int) -> None:
    (tmp_path / "secret").write_bytes(bytes(length))
    with pytest.raises(UserError, match=rf"secret: a secret file has 32 random bytes, this one has {length};"):
        load_secret(tmp_path / "secret")


def test_a_secret_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read or make this secret file: No such file"):
        load_secret(tmp_path / "missing" / "secret")
