"""Certificates for tests, made as users make them, and run files that name them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from cutlayer import certs
from cutlayer.common.certificates import Identity, now
from cutlayer.common.config import TlsFiles
from cutlayer.common.tls import OwnCertificate
from support.runs import Run, changed

PARTIES = ("label_party", "lab")


def make(folder: Path, job: str = "test", parties: tuple[str, ...] = PARTIES) -> Path:
    """A CA with a folder for each party."""
    certs.init(folder, job)
    certs.issue(folder, parties)
    return folder


def of_days(folder: Path, party: str, first: int, last: int) -> Path:
    """The folder of `party`, whose certificate holds from day `first` to day `last` from today."""
    begins: datetime = now() + timedelta(days=first)
    certs.issue(folder, [party], days=last - first, begins=begins)
    return folder / party


def files(kit: Path) -> TlsFiles:
    """The three files of a party's folder."""
    return TlsFiles(ca=kit / "ca.pem", cert=kit / "cert.pem", key=kit / "key.pem")


def own(folder: Path, party: str, job: str = "test") -> OwnCertificate:
    """The certificate of `party`, checked."""
    return OwnCertificate(files(folder / party), Identity(job, party), print)


def with_tls(run: Run, folder: Path) -> Run:
    """A copy of `run` in which every party has its certificate from `folder`."""
    sections = {"label_party": "label_party"} | {name: f"nonlabel_parties.{name}" for name in run["nonlabel_parties"]}
    tls = {name: {part: str(folder / name / f"{part}.pem") for part in ("ca", "cert", "key")} for name in sections}
    return changed(run, {f"{section}.tls": tls[name] for name, section in sections.items()})
