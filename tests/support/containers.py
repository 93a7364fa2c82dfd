"""The container engine of this machine, and docker-compose.yml as a project of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from support.runs import ROOT

BASE_IMAGE = "python:3.11-slim-bookworm"


def reason_to_skip() -> str | None:
    """Why there can be no containers here; None where there can."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    if _fails("docker", "info"):
        return "the docker engine does not run"
    if compose_tool() is None:
        return "neither docker-compose nor docker compose is installed"
    if _fails("docker", "image", "inspect", BASE_IMAGE) and _fails("docker", "pull", "-q", BASE_IMAGE):
        return f"the image {BASE_IMAGE} cannot be had"
    return None


@cache
def compose_tool() -> list[str] | None:
    """How compose is called here."""
    tools = [tool for tool in (["docker-compose"], ["docker", "compose"]) if not _fails(*tool, "version")]
    return tools[0] if tools else None


def docker(*args: str | Path, timeout: float = 60) -> str:
    """What `docker ARGS` writes to stdout, without the last line's end; it must not fail."""
    return run("docker", *args, timeout=timeout).stdout.strip()


def run(*command: str | Path, timeout: float, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `command` at the root of the checkout; it must not fail."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 90) -> None:
    """Look again and again until `condition` holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not so after {timeout} s: {what}"
        time.sleep(0.2)


class Project:
    """docker-compose.yml under a name of its own, with the secrets in `secrets`."""

    def __init__(self, image: str, secrets: Path) -> None:
        self._name = f"cutlayer-test-{os.getpid()}"
        self._environment = {"CUTLAYER_IMAGE": image, "CUTLAYER_SECRETS": str(secrets)}

    def compose(self, *args: str, timeout: float = 90) -> str:
        """What `docker-compose ARGS` writes to stdout; it must not fail."""
        profiles = ("--profile", "two-party", "--profile", "three-party")
        command = (*(compose_tool() or ()), "-p", self._name, *profiles, *args)
        return run(*command, timeout=timeout, **self._environment).stdout

    def container(self, service: str) -> str:
        """The id of the service's container."""
        labels = {"project": self._name, "service": service, "oneoff": "False"}
        filters = [f"--filter=label=com.docker.compose.{key}={value}" for key, value in labels.items()]
        return docker("ps", "-a", "-q", *filters)

    def execute(self, service: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run `command` inside the service's container, as its user; it may fail."""
        line = ["docker", "exec", self.container(service), *command]
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)

    def details(self, service: str) -> dict[str, Any]:
        """What the engine knows of the service's container."""
        (found,) = json.loads(docker("inspect", self.container(service)))
        details: dict[str, Any] = found
        return details

    def log(self, service: str) -> str:
        """All that the service's container has written, as it was written."""
        command = ["docker", "logs", self.container(service)]
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=True
        ).stdout

    def await_end(self, service: str, timeout: float = 240) -> None:
        """Wait until the service has ended, with status 0."""
        wait_until(lambda: self.details(service)["State"]["Status"] == "exited", f"{service} has ended", timeout)
        assert self.details(service)["State"]["ExitCode"] == 0, self.log(service)

    def fetch(self, service: str, target: Path) -> Path:
        """A copy of the results of the service."""
        docker("cp", f"{self.container(service)}:/results", target)
        return target


def _fails(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=300, check=False).returncode != 0
    except (OSError, subprocess.TimeoutExpired):
        return True
