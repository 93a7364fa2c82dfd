"""docker-compose.yml in true containers: kills and restarts, networks, secrets and logs.

Needs an engine, and is skipped without one. The image is built without a network from the wheels in wheels/, or
in the folder CUTLAYER_WHEELS, as `scripts/wheels` makes it; where there are none, they are collected first.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers import Project, docker, reason_to_skip, run, wait_until
from support.runs import ROOT, summary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

SOURCES = ("cutlayer", "common", "label_party", "nonlabel_party", "scripts")
FILES = ("Dockerfile", ".dockerignore", "LICENSE", "README.md", "pyproject.toml")
IMAGE = "cutlayer:test"
USER = 10001
PARTIES = {
    "clinic": "label_party",
    "lab": "lab",
    "hospital": "label_party",
    "cytology": "cytology",
    "imaging": "imaging",
}


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    if reason := reason_to_skip():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def image(engine: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of this checkout, built with no network."""
    context = tmp_path_factory.mktemp("context")
    for name in SOURCES:
        shutil.copytree(ROOT / name, context / name, symlinks=True)
    for name in FILES:
        shutil.copy(ROOT / name, context)
    wheels = Path(os.environ.get("CUTLAYER_WHEELS", ROOT / "wheels"))
    if not list(wheels.glob("*.whl")):
        wheels = tmp_path_factory.mktemp("collected")
        run(ROOT / "scripts/wheels", wheels, timeout=600, PIP_EXTRA_INDEX_URL="")
    shutil.copytree(wheels, context / "wheels")
    air_gapped = ("--network", "none", "--build-arg", "PIP_NO_INDEX=1", "--build-arg", "PIP_FIND_LINKS=/build/wheels")
    docker("build", "-q", *air_gapped, "--tag", IMAGE, context, timeout=1800)
    return IMAGE


@pytest.fixture(scope="module")
def secrets(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that `prepare` makes."""
    folder = tmp_path_factory.mktemp("secrets")
    project = Project(image, folder)
    project.compose("run", "--rm", "prepare")
    yield folder
    project.compose("run", "--rm", "--entrypoint", "rm -r /secrets/two-party /secrets/three-party", "prepare")
    project.compose("down", "-v", "--remove-orphans")


@pytest.fixture
def project(image: str, secrets: Path) -> Iterator[Project]:
    """The project, with nothing running and no results."""
    made = Project(image, secrets)
    yield made
    made.compose("down", "-v", "--remove-orphans", "-t", "5")


def saved_steps(project: Project, service: str) -> set[str]:
    """The checkpoints of a running party, but for that of the beginning."""
    listed = project.execute(service, "ls", f"/results/{PARTIES[service]}/checkpoints")
    return set(listed.stdout.split()) - {"step-000000000"}


def require_one_message_a_line(project: Project, *services: str) -> None:
    for service in services:
        written = project.log(service)
        assert not any(character in written for character in "\x1b\r"), written
        assert all(line.startswith(f"{PARTIES[service]}: ") for line in written.splitlines()), written


def require_private(project: Project, service: str, image: str) -> None:
    """All results are the user's own, and secrets are readable by nobody else."""
    of_path = "[os.stat(path).st_uid, os.stat(path).st_mode & 0o777]"
    look = f"import json, os, sys; print(json.dumps({{path: {of_path} for path in sys.argv[1:]}}))"
    folder = f"/results/{PARTIES[service]}"
    expected = {"/results": [USER, 0o700], folder: [USER, 0o700]}
    if PARTIES[service] == "label_party":
        expected[f"{folder}/noise_secret"] = [USER, 0o600]
    volumes = ("--volumes-from", project.container(service))
    found = docker("run", "--rm", *volumes, "--entrypoint", "python", image, "-c", look, *expected)
    assert json.loads(found) == expected


def test_P01_killed_containers_come_back_and_finish(project: Project, image: str, tmp_path: Path) -> None:
    project.compose("up", "-d", "clinic")
    wait_until(lambda: project.details("clinic")["State"]["Health"]["Status"] == "healthy", "the clinic is healthy")
    project.compose("up", "-d", "lab")

    wait_until(lambda: bool(saved_steps(project, "lab")), "the lab has saved a step")
    # As when the system kills it for its memory: the restart policy brings it back.
    assert project.execute("lab", "sh", "-c", "kill -9 $(cat /results/lab/lock)").returncode == 0
    wait_until(lambda: project.details("lab")["RestartCount"] == 1, "the lab was started again")
    wait_until(lambda: "going on from the checkpoint" in project.log("lab"), "the lab goes on")

    docker("kill", project.container("clinic"))  # the policy leaves alone what a person has stopped
    project.compose("up", "-d", "clinic")
    for service in ("clinic", "lab"):
        project.await_end(service)
        assert project.log(service).count("from the checkpoint of step") == 2
        require_private(project, service, image)
    require_one_message_a_line(project, "clinic", "lab")

    clinic, lab = (project.fetch(service, tmp_path / service) for service in ("clinic", "lab"))
    assert summary(clinic)["steps"] == 80 * 29
    histories = json.loads((clinic / "label_party/party.json").read_text())["history"]
    assert histories == {"lab": json.loads((lab / "lab/party.json").read_text())["history"]}

    project.compose("up", "-d", "clinic", "lab")  # a finished run says so and ends
    for service in ("clinic", "lab"):
        project.await_end(service)
        assert project.log(service).count("this run is finished") == 1


def test_P13_non_label_parties_have_no_way_to_each_other(project: Project) -> None:
    project.compose("up", "-d", "cytology", "imaging")  # they wait for the hospital, so there is time to look
    listen = "import socket; s = socket.create_server(('0.0.0.0', 7000)); [s.accept() for _ in iter(int, 1)]"
    docker("exec", "-d", project.container("imaging"), "python", "-c", listen)
    networks = project.details("imaging")["NetworkSettings"]["Networks"].values()
    (address,) = [network["IPAddress"] for network in networks]

    def reaches(service: str, host: str) -> bool:
        connect = f"import socket; socket.create_connection(({host!r}, 7000), 3); print('reached')"
        return "reached" in project.execute(service, "python", "-c", connect).stdout

    wait_until(lambda: reaches("imaging", address), "imaging listens")
    assert not reaches("cytology", address)
    assert not reaches("cytology", "imaging")
    project.compose("up", "-d", "hospital")
    assert reaches("hospital", "imaging")  # they share a network
    for service in ("hospital", "cytology", "imaging"):
        for network in project.details(service)["NetworkSettings"]["Networks"]:
            assert docker("network", "inspect", "-f", "{{.Internal}}", network) == "true"
        project.await_end(service)
    require_one_message_a_line(project, "hospital", "cytology", "imaging")


@pytest.mark.parametrize("service", ["clinic", "lab"])
def test_P13_a_container_may_do_little_and_reads_its_own_secrets(project: Project, service: str) -> None:
    project.compose("up", "-d", service)
    assert project.execute(service, "id", "-u").stdout.strip() == str(USER)
    status = project.execute(service, "cat", "/proc/self/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (fields["NoNewPrivs"], int(fields["CapBnd"], 16), int(fields["CapEff"], 16)) == ("1", 0, 0)
    assert "Read-only file system" in project.execute(service, "touch", "/work/file").stderr
    secrets = project.execute(service, "sh", "-c", "cd /run/secrets && ls -R && cat *.pem id_secret >/dev/null")
    assert secrets.returncode == 0, secrets.stderr
    expected = {"ca.pem", "cert.pem", "key.pem", "id_secret"} | ({"health"} if service == "clinic" else set())
    assert set(secrets.stdout.partition("./health")[0].split()) - {".:"} == expected
