"""Run files for tests, and the processes that execute them."""

from __future__ import annotations

import copy
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Run = dict[str, Any]

ROOT = Path(__file__).parents[2]

BREAST_CANCER: Run = {
    "job": {
        "name": "test",
        "epochs": 2,
        "batch_size": 64,
        "seed": 7,
        "cut_layer": {"width": 8},
        "parties": ["lab"],
    },
    "label_party": {
        "listen": "127.0.0.1:0",
        "data": {"source": "breast_cancer", "columns": "labels"},
        "top_model": {"name": "mlp", "hidden": [8]},
    },
    "nonlabel_parties": {
        "lab": {
            "connect": "127.0.0.1:0",
            "data": {"source": "breast_cancer", "columns": "features"},
            "bottom_model": {"name": "mlp", "hidden": [16]},
        }
    },
}


def changed(run: Run, changes: Mapping[str, Any]) -> Run:
    """A copy of `run` with values at dotted keys replaced; None removes a key."""
    result = copy.deepcopy(run)
    for dotted, value in changes.items():
        *parents, last = dotted.split(".")
        section = result
        for key in parents:
            section = section.setdefault(key, {})
        if value is None:
            section.pop(last, None)
        else:
            section[last] = value
    return result


def with_parties(run: Run, names: list[str]) -> Run:
    """A copy of `run` in which each of `names` holds an equal share of lab's feature columns."""
    result = copy.deepcopy(run)
    lab = result["nonlabel_parties"].pop("lab")
    result["job"]["parties"] = names
    for number, name in enumerate(names, start=1):
        section = copy.deepcopy(lab)
        section["data"]["part"] = f"{number}/{len(names)}"
        result["nonlabel_parties"][name] = section
    return result


def write(folder: Path, run: Run, name: str = "run.yaml") -> Path:
    """Write a run file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(yaml.safe_dump(run, sort_keys=False))
    return path


def command(*args: str | Path) -> list[str]:
    """The command line of `cutlayer ARGS`, in this interpreter."""
    return [sys.executable, "-m", "cutlayer.cli", *map(str, args)]


def environment(**extra: str) -> dict[str, str]:
    """The environment of a party in tests: one thread, no id secret unless given."""
    clean = {k: v for k, v in os.environ.items() if k != "CUTLAYER_ID_SECRET"}
    return clean | {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path()} | extra


def python_path(*more: Path) -> str:
    """Where processes find this checkout, the plugins of tests, and `more`."""
    return os.pathsep.join(map(str, (*more, ROOT, ROOT / "tests")))


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cutlayer(
    *args: str | Path, cwd: Path | None = None, timeout: float = 100, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run `cutlayer ARGS` to its end."""
    return subprocess.run(
        command(*args),
        cwd=cwd,
        env=environment(**extra),
        timeout=timeout,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def start(*args: str | Path, cwd: Path | None = None, **extra: str) -> subprocess.Popen[str]:
    """Start `cutlayer ARGS`; its output is read from the pipes."""
    return subprocess.Popen(
        command(*args),
        cwd=cwd,
        env=environment(**extra),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 60) -> tuple[int, str]:
    """Wait for the end; exit status and all output. Kills the process if it does not end in time."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end within {timeout} s:\n{out}\n{err}") from None
    return process.returncode, out + err


def summary(out: Path) -> Run:
    """The summary of a run."""
    result: Run = json.loads((out / "summary.json").read_text())
    return result
