"""cutlayer/certs.py: what is in the certificates and who may read the keys; that nothing is overwritten."""

from __future__ import annotations

import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from support import kits
from typer.testing import CliRunner

from cutlayer import certs
from cutlayer.certs_commands import app
from cutlayer.common.certificates import alternative_names, days_left, now, read_certificate
from cutlayer.common.errors import CertificateError, UserError

runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A CA with certificates for a label party that has a host of its own, and for lab."""
    certs.init(tmp_path / "certs", "test")
    certs.issue(tmp_path / "certs", ["label_party", "lab"], hosts=["labels.example.org", "10.0.0.7", "[fd00::7]"])
    return tmp_path / "certs"


def certificate(kit: Path) -> x509.Certificate:
    return read_certificate(kit / "cert.pem")


def names(kit: Path) -> list[str]:
    return [str(name.value) for name in alternative_names(certificate(kit)) or ()]


def test_P13_one_folder_for_each_party_and_keys_for_their_owner_alone(folder: Path) -> None:
    found = {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*.pem")}
    assert found == {
        "ca/cert.pem": 0o644,
        "ca/key.pem": 0o600,
        "label_party/ca.pem": 0o644,
        "label_party/cert.pem": 0o644,
        "label_party/key.pem": 0o600,
        "lab/ca.pem": 0o644,
        "lab/cert.pem": 0o644,
        "lab/key.pem": 0o600,
    }
    assert {(folder / name).stat().st_mode & 0o777 for name in ("ca", "label_party", "lab")} == {0o700}


def test_P13_names_in_the_certificates(folder: Path) -> None:
    local = ["localhost", "127.0.0.1", "::1"]
    hosts = [*local, "labels.example.org", "10.0.0.7", "fd00::7"]
    assert names(folder / "label_party") == ["spiffe://test/label-party", *hosts]
    assert names(folder / "lab") == ["spiffe://test/nonlabel-party/lab"]


def test_P13_one_role_for_each_certificate(folder: Path) -> None:
    roles = {"label_party": ExtendedKeyUsageOID.SERVER_AUTH, "lab": ExtendedKeyUsageOID.CLIENT_AUTH}
    for party, role in roles.items():
        usage = certificate(folder / party).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(usage) == [role]


def test_keys_are_p256_and_only_the_ca_signs(folder: Path) -> None:
    for party, signs in (("ca", True), ("label_party", False), ("lab", False)):
        found = certificate(folder / party)
        key = found.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
        assert found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is signs
        assert found.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is signs


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
@pytest.mark.parametrize(("party", "purpose"), [("label_party", "sslserver"), ("lab", "sslclient")])
def test_another_implementation_accepts_them_by_the_letter(folder: Path, party: str, purpose: str) -> None:
    ca, cert = folder / "ca" / "cert.pem", folder / party / "cert.pem"
    command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", str(ca), str(cert)]
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_lifetimes(folder: Path) -> None:
    assert days_left(certificate(folder / "ca")) == certs.CA_DAYS - 1
    assert days_left(certificate(folder / "lab")) == certs.DAYS - 1
    certs.issue(folder, ["bank"], days=7)
    assert days_left(certificate(folder / "bank")) == 6
    certs.issue(folder, ["shop"], days=100_000)
    assert certificate(folder / "shop").not_valid_after_utc == certificate(folder / "ca").not_valid_after_utc


def test_clocks_may_differ_a_little(folder: Path) -> None:
    assert certificate(folder / "lab").not_valid_before_utc < now() - timedelta(minutes=50)


def test_nothing_is_overwritten(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.pem")}
    with pytest.raises(UserError, match="ca: exists already, and nothing is overwritten"):
        certs.init(folder, "test")
    with pytest.raises(UserError, match=r"lab: exists already.*`cutlayer certs renew .*certs lab`"):
        certs.issue(folder, ["bank", "lab"])
    assert {path: path.read_bytes() for path in folder.rglob("*.pem")} == before


def test_renewal_makes_a_new_key_for_the_same_names(folder: Path) -> None:
    old, key, before = certificate(folder / "label_party"), (folder / "label_party" / "key.pem"), None
    before = key.read_bytes()
    certs.renew(folder, "label_party", days=20)
    new = certificate(folder / "label_party")
    assert alternative_names(new) == alternative_names(old)
    assert new.serial_number != old.serial_number
    assert key.read_bytes() != before
    assert key.stat().st_mode & 0o777 == 0o600
    assert days_left(new) == 19
    kits.own(folder, "label_party")


def test_P13_renewal_for_a_label_party_that_is_reached_by_one_more_name(folder: Path) -> None:
    before = names(folder / "label_party")
    certs.renew(folder, "label_party", ["labels.example.net", "::1", "10.0.0.7"])
    assert names(folder / "label_party") == [*before, "labels.example.net"]
    kits.own(folder, "label_party")


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (lambda folder: certs.issue(folder.parent, ["lab"]), "there is no CA; make one with `cutlayer certs init"),
        (lambda folder: certs.renew(folder, "bank"), "has no certificate to renew; write `cutlayer certs issue"),
        (lambda folder: certs.issue(folder, ["../bank"]), "a name has letters, digits"),
        (lambda folder: certs.issue(folder, ["ca"]), "that folder is the CA's own"),
        (lambda folder: certs.init(folder.parent / "other", "a/b"), "a name has letters, digits"),
        (lambda folder: certs.issue(folder, ["bank"], hosts=["a.org"]), "give it where you issue for label_party"),
        (lambda folder: certs.renew(folder, "lab", ["a.org"]), "give it where you renew label_party"),
        (lambda folder: certs.renew(folder, "label_party", ["a.org:1"]), "without a port"),
        (lambda folder: certs.show(folder / "lab" / "key.pem"), "expected a certificate in PEM form, found a private"),
        (lambda folder: certs.show(folder / "nothing"), "nothing: cannot be read"),
    ],
)
def test_mistakes_are_the_users_and_leave_nothing_behind(folder: Path, work: object, text: str) -> None:
    assert callable(work)
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(UserError, match=text):
        work(folder)
    assert sorted(folder.parent.rglob("*")) == before


@pytest.mark.parametrize("host", ["labels.example.org:50051", "https://labels.example.org", "", "a b"])
def test_a_host_is_a_name_or_an_address(tmp_path: Path, host: str) -> None:
    certs.init(tmp_path, "test")
    with pytest.raises(UserError, match="without a port"):
        certs.issue(tmp_path, ["label_party"], hosts=[host])
    assert not (tmp_path / "label_party").exists()


def test_without_the_cas_key_nothing_is_issued(folder: Path) -> None:
    (folder / "ca" / "key.pem").unlink()
    with pytest.raises(CertificateError, match="the CA's private key cannot be read; run this where the CA is kept"):
        certs.issue(folder, ["bank"])


def test_show_says_it_in_words(folder: Path) -> None:
    assert certs.show(folder / "lab" / "cert.pem").splitlines()[1:5] == [
        "  subject  lab",
        "  role     party 'lab' of job 'test'",
        "  names    spiffe://test/nonlabel-party/lab",
        "  issuer   Cutlayer CA of test",
    ]
    assert "expires in 364 days" in certs.show(folder / "lab" / "cert.pem")
    assert "the label party of job 'test'" in certs.show(folder / "label_party" / "cert.pem")
    assert "the CA of job 'test'" in certs.show(folder / "ca" / "cert.pem")
    assert "expired" in certs.show(kits.of_days(folder, "old", -9, -2) / "cert.pem")
    assert "not yet valid" in certs.show(kits.of_days(folder, "new", 3, 9) / "cert.pem")


def test_the_commands(tmp_path: Path) -> None:
    folder = str(tmp_path / "certs")
    issue = ["issue", folder, "label_party", "lab", "--host", "a.example.org", "--host", "10.0.0.7", "--days", "90"]
    for arguments, text in (
        (["init", folder, "--job", "test"], "the CA of job test"),
        (issue, "lab: for lab alone"),
        (["show", f"{folder}/label_party/cert.pem", f"{folder}/lab/cert.pem"], "a.example.org, 10.0.0.7"),
        (["renew", folder, "lab"], "renewed"),
        (["renew", folder, "label_party", "--host", "b.example.org"], "renewed"),
        (["show", f"{folder}/label_party/cert.pem"], "10.0.0.7, b.example.org"),
    ):
        result = runner.invoke(app, arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        assert text in result.stdout
    again = runner.invoke(app, ["init", folder, "--job", "test"])
    assert again.exit_code == 2
    assert "nothing is overwritten" in again.stderr
