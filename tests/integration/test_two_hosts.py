"""Parties on hosts of their own: each with its own command, folder and file, started in any order."""

from __future__ import annotations

import sys
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.processes import Background
from support.runs import BREAST_CANCER, ROOT, changed, free_port, with_parties, write

SERVICE = "cutlayer.v1.LabelPartyService"
RUN = with_parties(BREAST_CANCER, ["lab", "clinic"])
SECRET = {"CUTLAYER_ID_SECRET": "shared by a phone call"}


def host(folder: Path, party: str, address: str) -> Path:
    """A working folder with the file of one party, which lacks the sections of the others."""
    if party == "label_party":
        run = changed(RUN, {"nonlabel_parties": None, "label_party.listen": address})
    else:
        others = {f"nonlabel_parties.{name}": None for name in RUN["job"]["parties"] if name != party}
        run = changed(RUN, others | {"label_party": None, f"nonlabel_parties.{party}.connect": address})
    return write(folder / f"host_of_{party}", run, "mine.yaml")


def health_of(address: str, service: str) -> int:
    """What the health service says."""
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        status: int = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10).status
        return status


def reflected_services(address: str) -> tuple[set[str], str]:
    """Names that reflection lists, and the package of the file of our service."""
    with grpc.insecure_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        questions = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
        ]
        listed, described = stub.ServerReflectionInfo(iter(questions), timeout=10)
    names = {service.name for service in listed.list_services_response.service}
    return names, FileDescriptorProto.FromString(described.file_descriptor_response.file_descriptor_proto[0]).package


@pytest.mark.slow
def test_three_hosts_in_any_order(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    paths = {party: host(tmp_path, party, address) for party in ("lab", "label_party", "clinic")}

    def start(party: str, *args: str) -> Background:
        command = "label-party" if party == "label_party" else "nonlabel-party"
        return Background(command, "mine.yaml", *args, cwd=paths[party].parent, variables=SECRET)

    with start("lab", "--name", "lab") as lab:
        lab.await_words(f"waiting for the label party at {address}")
        with start("label_party") as label_party:
            label_party.await_words("lab has connected", "waiting for clinic")
            serving = health_pb2.HealthCheckResponse.SERVING
            assert health_of(address, "") == health_of(address, SERVICE) == serving
            names, package = reflected_services(address)
            assert SERVICE in names
            assert package == "cutlayer.v1"
            with start("clinic", "--name", "clinic") as clinic:
                for process in (lab, label_party, clinic):
                    status, output = process.finish()
                    assert status == 0, output

    expected = {"lab": {"lab"}, "clinic": {"clinic"}}
    expected["label_party"] = {"label_party", "run.json", "summary.json", "metrics.jsonl"}
    for party, names in expected.items():
        folder = paths[party].parent
        assert {path.name for path in folder.iterdir()} == {"mine.yaml", "runs"}
        assert {path.name for path in (folder / "runs" / "test").iterdir()} == names


@pytest.mark.slow
def test_modules_of_a_checkout(tmp_path: Path) -> None:
    """`python -m label_party` and `python -m nonlabel_party` at the root of a checkout, server first."""
    address = f"127.0.0.1:{free_port()}"
    path = write(tmp_path, BREAST_CANCER)

    def start(module: str, *args: str | Path) -> Background:
        line = (sys.executable, "-m", module, path, "--out", tmp_path / "out", *args)
        return Background(*line, cwd=ROOT, whole=True, variables=SECRET | {"PYTHONPATH": ""})

    with start("label_party", "--listen", address) as label_party:
        label_party.await_words("waiting for lab")
        with start("nonlabel_party", "--name", "lab", "--connect", address) as lab:
            for process in (label_party, lab):
                status, output = process.finish()
                assert status == 0, output
    assert (tmp_path / "out" / "lab" / "model" / "model.safetensors").is_file()
