"""docker-compose.yml as it is written: who shares a network, a secret or a volume with whom. Needs no engine."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.runs import ROOT

from cutlayer.common.config import RunFile
from cutlayer.common.run_files import load

Service = dict[str, Any]

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
PROFILES = {"two-party": ["clinic", "lab"], "three-party": ["hospital", "cytology", "imaging"]}
PARTIES = [(profile, service) for profile, services in PROFILES.items() for service in services]

every_party = pytest.mark.parametrize(("profile", "name"), PARTIES)


def service(name: str) -> Service:
    found: Service = COMPOSE["services"][name]
    return found


def with_defaults(text: str) -> str:
    """`text` with variables replaced by their defaults."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def mounted(name: str, target: str) -> Path:
    """What the host shows the service as `target`."""
    (source,) = [v.partition(f":{target}")[0] for v in map(with_defaults, service(name)["volumes"]) if target in v]
    return ROOT / source


def run_file(name: str) -> RunFile:
    return load(mounted(name, "/work/run.yaml"))


def secrets(name: str) -> dict[str, str]:
    """Target -> file on the host, of the service's secrets."""
    return {s["target"]: with_defaults(COMPOSE["secrets"][s["source"]]["file"]) for s in service(name)["secrets"]}


def test_the_parties_are_all_services_but_prepare() -> None:
    assert set(COMPOSE["services"]) == {"prepare"} | {name for _, name in PARTIES}


@every_party
def test_a_party_is_of_its_profile_and_of_no_other(profile: str, name: str) -> None:
    assert service(name)["profiles"] == [profile]


@pytest.mark.parametrize("profile", PROFILES)
def test_P13_only_the_label_party_shares_networks(profile: str) -> None:
    label_party, *others = PROFILES[profile]
    networks = {name: set(service(name)["networks"]) for name in PROFILES[profile]}
    assert all(networks[label_party] & networks[other] for other in others)
    for one, another in combinations(others, 2):
        assert not networks[one] & networks[another]
    assert all(COMPOSE["networks"][network]["internal"] for network in networks[label_party])


@every_party
def test_a_party_may_do_no_more_than_it_needs(profile: str, name: str) -> None:
    party = service(name)
    assert party["read_only"]
    assert party["cap_drop"] == ["ALL"]
    assert party["security_opt"] == ["no-new-privileges:true"]
    assert "cap_add" not in party
    assert "user" not in party  # the image's
    assert party["restart"].startswith("on-failure:")


@every_party
def test_a_party_stops_within_its_grace(profile: str, name: str) -> None:
    section = run_file(name).label_party or next(iter(run_file(name).nonlabel_parties.values()))
    assert int(service(name)["stop_grace_period"].removesuffix("s")) > section.timeouts.goodbye_s + 10


@every_party
def test_the_file_of_a_party_has_its_own_section_alone(profile: str, name: str) -> None:
    run = run_file(name)
    label_party = PROFILES[profile][0]
    assert run.job.name == profile
    if name == label_party:
        assert (run.label_party is not None, run.nonlabel_parties) == (True, {})
        return
    assert run.label_party is None
    assert set(run.nonlabel_parties) == {name}
    assert service(name)["command"][:4] == ["nonlabel-party", "run.yaml", "--name", name]
    assert run.nonlabel_parties[name].connect == f"{label_party}:50051"


@every_party
def test_P13_a_party_gets_its_own_keys_alone(profile: str, name: str) -> None:
    folder = "label_party" if name == PROFILES[profile][0] else name
    expected = {"id_secret": "id_secret", "ca.pem": "ca/cert.pem"}
    expected |= {file: f"{folder}/{file}" for file in ("cert.pem", "key.pem")}
    if folder == "label_party":
        expected |= {"health/ca.pem": "ca/cert.pem"}
        expected |= {f"health/{file}": f"health/{file}" for file in ("cert.pem", "key.pem")}
    assert secrets(name) == {target: f"./secrets/{profile}/{file}" for target, file in expected.items()}


def test_every_volume_and_secret_has_one_owner() -> None:
    volumes = [v.partition(":")[0] for _, name in PARTIES for v in service(name)["volumes"] if v.endswith(":/results")]
    assert sorted(volumes) == sorted(COMPOSE["volumes"])
    assert len(set(volumes)) == len(PARTIES)
    keys = [s["source"] for _, name in PARTIES for s in service(name)["secrets"] if s["source"].endswith("_key")]
    assert len(set(keys)) == len(keys)


def test_the_secrets_are_made_for_these_parties() -> None:
    script = (ROOT / "scripts/docker-secrets").read_text(encoding="utf-8")
    made = {words[0]: words[1:] for words in (m.split() for m in re.findall(r"^make_for (.*)$", script, re.MULTILINE))}
    assert made == PROFILES


def test_nothing_but_what_the_image_is_made_of_is_sent_to_the_engine() -> None:
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert rules[1] == "*"
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    sources = {source for line in copied for source in line.split()} - {"wheel[s]/*.whl"}
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == sources | {"wheels"}
