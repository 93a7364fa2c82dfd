"""common/tls.py and certificates.py: a party's own files are checked and followed, and plaintext stays at home."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import kits
from support.runs import BREAST_CANCER, changed, write

from cutlayer import certs
from cutlayer.common import run_files
from cutlayer.common.certificates import Identity, identity_in
from cutlayer.common.config import NonlabelPartySection, PartySection
from cutlayer.common.errors import CertificateError, ConfigError
from cutlayer.common.tls import OwnCertificate, host_of, is_loopback, own_certificate

LAB = Identity("test", "lab")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A CA with certificates of label_party and lab."""
    return kits.make(tmp_path / "certs")


@pytest.mark.parametrize(
    ("uris", "party"),
    [
        (["spiffe://test/nonlabel-party/lab"], "lab"),
        (["spiffe://test/label-party"], "label_party"),
        (["spiffe://test/nonlabel-party/lab", "spiffe://test/label-party"], None),
        (["spiffe://test/nonlabel-party/lab", "https://lab.example.org"], None),
        (["spiffe://test/nonlabel-party/"], None),
        (["spiffe://test/nonlabel-party/lab/more"], None),
        (["spiffe://test"], None),
        (["spiffe:///label-party"], None),
        ([], None),
    ],
)
def test_P13_a_certificate_is_for_exactly_one_party(uris: list[str], party: str | None) -> None:
    assert identity_in(uris) == (Identity("test", party) if party else None)


def test_a_uri_and_its_identity_are_each_others_inverse() -> None:
    for identity in (LAB, Identity("A.b_c-1", "label_party"), Identity("test", "B.c_d-2")):
        assert identity_in([identity.uri]) == identity


def replaced(folder: Path, part: str, other: Path) -> None:
    shutil.copy(other, folder / "lab" / f"{part}.pem")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda f: (f / "lab" / "key.pem").unlink(), r"key.pem: cannot be read \(No such file or directory\)"),
        (lambda f: (f / "lab" / "cert.pem").write_text("x"), "cert.pem: expected a certificate in PEM form"),
        (lambda f: replaced(f, "cert", f / "lab" / "key.pem"), "cert.pem: expected a certificate.*a private key"),
        (lambda f: replaced(f, "key", f / "lab" / "cert.pem"), "key.pem: expected a private key in PEM form"),
        (lambda f: replaced(f, "key", f / "ca" / "key.pem"), "key.pem: this key does not belong to the certificate"),
        (lambda f: replaced(f, "ca", kits.make(f / "other") / "ca" / "cert.pem"), "was not made by the CA in .*ca.pem"),
        (lambda f: replaced(f, "ca", f / "lab" / "cert.pem"), "was not made by the CA in .*ca.pem"),
    ],
)
def test_P13_files_that_do_not_fit_are_named(folder: Path, damage: Callable[[Path], object], text: str) -> None:
    damage(folder)
    with pytest.raises(CertificateError, match=text):
        kits.own(folder, "lab")


@pytest.mark.parametrize(
    ("first", "last", "text"), [(-9, -2, "has expired on .*certs renew"), (3, 9, "is not yet valid: it begins at")]
)
def test_P13_a_certificate_that_is_not_in_force(folder: Path, first: int, last: int, text: str) -> None:
    kits.of_days(folder, "bank", first, last)
    with pytest.raises(CertificateError, match=f"bank/cert.pem: {text}"):
        kits.own(folder, "bank")


@pytest.mark.parametrize("owner", [Identity("test", "bank"), Identity("other", "lab"), Identity("test", "label_party")])
def test_P13_a_certificate_of_somebody_else(folder: Path, owner: Identity) -> None:
    with pytest.raises(CertificateError) as caught:
        OwnCertificate(kits.files(folder / "lab"), owner, print)
    assert f"is for party 'lab' of job 'test', expected one for {owner}" in str(caught.value)


def test_the_ca_file_may_hold_the_old_ca_and_the_new_one(folder: Path) -> None:
    other = kits.make(folder / "other") / "ca" / "cert.pem"
    own = (folder / "lab" / "ca.pem").read_bytes()
    (folder / "lab" / "ca.pem").write_bytes(other.read_bytes() + own)
    kits.own(folder, "lab")


def test_key_is_not_shown(folder: Path) -> None:
    assert "PRIVATE" not in repr(kits.own(folder, "lab").current())


def test_P13_renewed_files_are_taken_up(folder: Path) -> None:
    own = kits.own(folder, "lab")
    first = own.current()
    assert own.current() is first
    certs.renew(folder, "lab")
    assert own.current().cert == (folder / "lab" / "cert.pem").read_bytes() != first.cert


def test_P13_half_a_renewal_changes_nothing_and_is_told_once(folder: Path) -> None:
    told: list[str] = []
    own = OwnCertificate(kits.files(folder / "lab"), LAB, told.append)
    first, cert = own.current(), (folder / "lab" / "cert.pem").read_bytes()
    certs.renew(folder, "lab")
    renewed = (folder / "lab" / "cert.pem").read_bytes()
    (folder / "lab" / "cert.pem").write_bytes(cert)
    assert own.current() is own.current() is first
    assert len(told) == 1
    assert told[0].endswith(
        "does not belong to the certificate " + f"{folder}/lab/cert.pem; going on with the earlier files"
    )
    (folder / "lab" / "cert.pem").write_bytes(renewed)
    assert own.current().cert == renewed


@pytest.mark.parametrize(("days", "warnings"), [(29, 1), (32, 0)])
def test_a_certificate_near_its_end_is_told(folder: Path, days: int, warnings: int) -> None:
    told: list[str] = []
    kits.of_days(folder, "bank", 0, days)
    OwnCertificate(kits.files(folder / "bank"), Identity("test", "bank"), told.append)
    assert len(told) == warnings
    assert all("bank/cert.pem expires in 28 days; renew it" in line for line in told)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:0", True),
        ("127.9.9.9:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("labels.example.org:1", False),
        ("localhost.example.org:1", False),
        ("127.0.0.1.example.org:1", False),
    ],
)
@pytest.mark.parametrize("where", ["label_party.listen", "nonlabel_parties.lab.connect"])
def test_P13_plaintext_only_on_loopback(address: str, loopback: bool, where: str) -> None:
    def line(section: PartySection) -> OwnCertificate | None:
        return own_certificate(section, LAB, where, address, print)

    plain = NonlabelPartySection.model_validate({"data": {"source": "wine"}})
    assert is_loopback(address) is loopback
    assert line(plain.model_copy(update={"insecure": True})) is None
    if loopback:
        assert line(plain) is None
    else:
        with pytest.raises(ConfigError, match=rf"{where}: .* is no loopback address.*write `tls: .*`insecure: true`"):
            line(plain)


def test_host_of_an_address() -> None:
    assert [host_of(address) for address in ("a.org:1", "[::1]:1", "10.0.0.1:1")] == ["a.org", "::1", "10.0.0.1"]


def test_paths_are_taken_from_the_run_files_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = {part: f"certs/lab/{part}.pem" for part in ("ca", "cert", "key")}
    path = write(folder.parent, changed(BREAST_CANCER, {"nonlabel_parties.lab.tls": tls}))
    monkeypatch.chdir("/")
    loaded = run_files.load(Path(os.path.relpath(path, "/")))
    assert loaded.nonlabel_parties["lab"].tls == kits.files(folder / "lab")


def test_tls_and_insecure_contradict_each_other(tmp_path: Path) -> None:
    tls = {part: f"{part}.pem" for part in ("ca", "cert", "key")}
    run = changed(BREAST_CANCER, {"label_party.tls": tls, "label_party.insecure": True})
    with pytest.raises(ConfigError, match="contradict each other"):
        run_files.load(write(tmp_path, run))
