"""Files that are whole or absent, folders that belong to one process, and secrets that nobody else reads."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from cutlayer.common.errors import StorageError, UserError

SECRET_BYTES = 32  # what the noise is keyed with; not taken from randomness.py, which needs torch

_REMEDIES = {
    errno.ENOSPC: "make room on this disk",
    errno.EDQUOT: "make room, or raise this user's disk quota",
    errno.EFBIG: "raise the limit on the size of files (`ulimit -f`)",
    errno.EROFS: "make this disk writable",
    errno.EACCES: "let this user write there",
    errno.EPERM: "let this user write there",
}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the system says inside into words for a person.

    Raises:
        StorageError: `path` cannot be written; says why and what to do.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        remedy = _REMEDIES.get(error.errno or 0, "see to this disk")
        message = f"{path}: cannot be written ({why}); {remedy}, then start again with the same --out DIR"
        raise StorageError(message, why) from error


def write_atomically(path: Path, data: bytes | str, mode: int = 0o644) -> None:
    """Write `data` to `path`: after a crash or a loss of power there is the old file or the new one, whole.

    Args:
        mode: permission bits of the file.

    Raises:
        StorageError: the disk is full, the folder is missing or read-only; no temporary file stays behind.
    """
    with writing(path):
        temporary = _write_temporary(path, data.encode() if isinstance(data, str) else data, mode)
        try:
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_json(path: Path, obj: Any) -> None:
    """Write `obj` to `path` atomically as strict JSON: a number that is not finite is a ValueError."""
    write_atomically(path, json.dumps(obj, indent=2, allow_nan=False) + "\n")


def private_folder(path: Path) -> Path:
    """Make the folder `path`, with its parents, readable by its owner alone; returns it when it is safe on the disk.

    Raises:
        UserError: a file is in the way, or a permission or a read-only disk does not allow it.
        StorageError: the disk is full.
    """
    try:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stat.S_IMODE(path.stat().st_mode) != 0o700:
            path.chmod(0o700)
        for folder in missing:
            sync_folder(folder.parent)
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{path}: a file is in the way of this folder; move it or give another --out DIR") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            with writing(path):
                raise
        raise UserError(f"{path}: cannot make this folder ({error.strerror}); give another --out DIR") from error
    return path


class DirectoryLock:
    """Holds `folder` for this process alone while the context lasts. The system frees it however the process ends.

    Raises:
        UserError: another process holds it; the message has its process id.
        StorageError: the disk is full, or the folder read-only.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None

    def __enter__(self) -> DirectoryLock:
        with writing(self._folder / "lock"):
            file = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise UserError(
                f"{self._folder} is in use by process {holder}; wait for it, stop it, or give another --out DIR"
            ) from error
        try:
            with writing(self._folder / "lock"):
                os.truncate(file, 0)
                os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        except StorageError:
            os.close(file)
            raise
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)  # also frees the lock; the file stays, as removing it would let two in
            self._file = None


def load_secret(path: Path) -> bytes:
    """The 32 secret bytes in `path`; where there is no such file it is made, mode 0600, from the system's randomness.

    Two processes that start together get the same bytes.

    Raises:
        UserError: the file cannot be read or made, or has another length.
    """
    try:
        if not path.exists():
            _create_secret(path)
        secret = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot read or make this secret file: {error.strerror}") from error
    if len(secret) != SECRET_BYTES:
        raise UserError(
            f"{path}: a secret file has {SECRET_BYTES} random bytes, this one has {len(secret)}; "
            f"make one with `head -c {SECRET_BYTES} /dev/urandom > FILE`, or remove it to have one made"
        )
    return secret


def _create_secret(path: Path) -> None:
    temporary = _write_temporary(path, os.urandom(SECRET_BYTES), 0o600)
    try:
        # A link fails where the name is taken, and shows the file only when it is whole; O_EXCL gives only the former.
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
    sync_folder(path.parent)


def _write_temporary(path: Path, data: bytes, mode: int) -> Path:
    """A file with `data`, safely on the disk, beside `path`."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file with `data`, mode 0600, safely on the disk; its name is so only after `sync_folder`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` last through a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
