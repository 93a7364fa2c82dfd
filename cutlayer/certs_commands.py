"""The commands `cutlayer certs ...`; no logic."""
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make and read the parties' certificates.")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the job's certificates.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST", help="Where the label party is reached: DNS name or IP address; may be repeated."),
]
Days = Annotated[int, typer.Option(min=1, metavar="N", help="How long it holds.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show tracebacks of internal errors.")]


@app.command()
def init(
    folder: Folder,
    job: Annotated[str, typer.Option(metavar="NAME", help="The job's name, as in the run file.")],
    days: Days = 3650,
    verbose: Verbose = False,
) -> None:
    """Make a private CA for one job in DIR/ca.

    Whoever has DIR/ca/key.pem can be any party: keep it off the parties' hosts.
    """
    from cutlayer import certs

    _run(
        lambda: certs.init(folder, job, days),
        f"{folder / 'ca'}: the CA of job {job}; now `cutlayer certs issue {folder} label_party NAME...`",
        verbose,
    )


@app.command()
def issue(
    folder: Folder,
    parties: Annotated[list[str], typer.Argument(metavar="PARTY...", help="label_party, or a non-label party's name.")],
    host: Hosts = None,
    days: Days = 365,
    verbose: Verbose = False,
) -> None:
    """Make a folder for each PARTY with its certificate, its key and the CA's certificate.

    Hand each folder to its party, and to nobody else.
    """
    from cutlayer import certs

    made = "\n".join(f"{folder / party}: for {party} alone; its `tls` names these files" for party in parties)
    _run(lambda: certs.issue(folder, parties, host or [], days), made, verbose)


@app.command()
def renew(
    folder: Folder,
    party: Annotated[str, typer.Argument(metavar="PARTY", help="label_party, or a non-label party's name.")],
    host: Hosts = None,
    days: Days = 365,
    verbose: Verbose = False,
) -> None:
    """Give PARTY a new key and certificate for the same names, and those of --host.

    Running processes take the files up at the next connection.
    """
    from cutlayer import certs

    _run(lambda: certs.renew(folder, party, host or [], days), f"{folder / party}: renewed", verbose)


@app.command()
def show(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Certificates, PEM.")],
    verbose: Verbose = False,
) -> None:
    """Show what certificates say: whose they are, for which hosts, by whom, and until when."""
    from cutlayer import certs

    _run(lambda: [print(certs.show(file)) for file in files], "", verbose)


def _run(work: Callable[[], object], done: str, verbose: bool) -> None:
    from cutlayer.common.process import run_party

    def body() -> None:
        work()
        if done:
            print(done)

    raise typer.Exit(run_party("certs", body, verbose=verbose))
