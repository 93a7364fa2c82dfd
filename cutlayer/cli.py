"""The commands; no logic. What a command needs is imported when it runs: torch alone takes seconds."""
# ruff: noqa: PLC0415

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cutlayer import __version__, certs_commands
from cutlayer.common.process import loading, print_error, run_party, write_out

app = typer.Typer(
    name="cutlayer",
    help="Split learning between organisations, with the labels kept from leaking.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(certs_commands.app, name="certs")


class Engine(StrEnum):
    """What carries the runs of a sweep."""

    LOCAL = "local"
    RAY = "ray"


class Family(StrEnum):
    """What `cutlayer list` can list."""

    DEFENSES = "defenses"
    ATTACKS = "attacks"
    MODELS = "models"
    DATASETS = "datasets"


RunFile = Annotated[Path, typer.Argument(metavar="FILE", help="The run file, YAML.")]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the results; default runs/<job name>.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show tracebacks, and all that the parties write.")]
Events = Annotated[bool, typer.Option("--events", hidden=True)]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"cutlayer {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Split learning between organisations, with the labels kept from leaking."""


@app.command()
def run(file: RunFile, out: Out = None, verbose: Verbose = False, events: Events = False) -> None:
    """Run all parties of FILE on this machine.

    Each is a process of its own. Shows how far they are, and the figures when they have finished.
    """
    from cutlayer import tuning

    raise typer.Exit(run_party("run", lambda: tuning.run(file, out, verbose=verbose, events=events), verbose=verbose))


@app.command()
def label_party(
    file: RunFile,
    out: Out = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen here instead of where the file says.")
    ] = None,
    verbose: Verbose = False,
    events: Events = False,
) -> None:
    """Run the label party alone, on its own host."""
    with loading():
        from cutlayer.label_party.process import command

    command(file=file, out=out, listen=listen, verbose=verbose, events=events)


@app.command()
def nonlabel_party(
    file: RunFile,
    name: Annotated[str, typer.Option(metavar="NAME", help="Which of the job's parties to run.")],
    out: Out = None,
    connect: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The label party's address, instead of the file's.")
    ] = None,
    verbose: Verbose = False,
    events: Events = False,
) -> None:
    """Run one non-label party, on its own host."""
    with loading():
        from cutlayer.nonlabel_party.process import command

    command(file=file, name=name, out=out, connect=connect, verbose=verbose, events=events)


@app.command()
def check(
    file: RunFile,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Check this party alone, on its own host; or label_party.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Check FILE, data, models and row ids.

    Reports everything that would keep FILE from running. Trains nothing.
    """
    with loading():
        from cutlayer.check import check

    raise typer.Exit(run_party("check", lambda: check(file, name), verbose=verbose))


@app.command()
def health(
    file: RunFile,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Ask as this non-label party; without it, on the label party's host."),
    ] = None,
    connect: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The label party's address, instead of the file's.")
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder with cert.pem, key.pem and ca.pem to ask with, instead of the file's."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Ask the label party whether it serves.

    Ends with 0 if it does, with 1 if not or if nobody answers.
    """
    from cutlayer.health import health

    raise typer.Exit(run_party("health", lambda: health(file, name, connect, certificate), verbose=verbose))


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The sweep file, YAML; see docs/sweep.md.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the sweep; default sweeps/<name of FILE>.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Runs side by side; default: what the cores carry.")
    ] = None,
    engine: Annotated[Engine | None, typer.Option(help="Instead of the file's; ray needs cutlayer[ray].")] = None,
    verbose: Verbose = False,
) -> None:
    """Run a grid over the keys of a run file, and write one table of results.

    The same command goes on where a sweep was stopped or killed: runs that have finished are kept.
    """
    from cutlayer.sweep import sweep

    raise typer.Exit(run_party("sweep", lambda: sweep(file, out, jobs, engine), verbose=verbose))


@app.command()
def attack(
    captures: Annotated[list[Path], typer.Argument(metavar="CAPTURE...", help="Folders <results>/<party>/capture.")],
    attack: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:k=v]", help="An attack, with options; again for more. Default: all that fit."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="True labels, to measure with; default: the results' own, if they are there."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="New folder for guesses and figures; default: none is written.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Run attacks on what curious parties have recorded.

    Gives the figures that the same attacks would have had beside training.
    """
    with loading():
        from cutlayer.attack import run_attacks

    raise typer.Exit(run_party("attack", lambda: run_attacks(captures, attack, labels, out), verbose=verbose))


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs or of sweeps.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; default report.html in the first DIR.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Write one HTML page about runs: utility, leaks, bounds, gradients, figures to look into.

    It needs nothing from the network. It tells labels, so it is for the label party alone.
    """
    with loading():
        from cutlayer.report import report

    raise typer.Exit(run_party("report", lambda: report(folders, out), verbose=verbose))


@app.command("list")
def list_(
    family: Annotated[Family | None, typer.Argument(help="What to list; by default all.")] = None,
    verbose: Verbose = False,
) -> None:
    """List what a run file can name.

    Each with its paper, what it needs, and its options with their defaults.
    """
    with loading():
        from cutlayer.catalogue import catalogue

    raise typer.Exit(run_party("list", lambda: write_out(sys.stdout, catalogue(family) + "\n"), verbose=verbose))


def main() -> None:
    """Entry point of `cutlayer`."""
    # Plugins in the working folder are found as with `python -m`, which is how `run` starts the parties.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:  # of the output itself, as with a full disk: all else is caught where it is understood
        write_out(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            print_error(f"the output could not be written: {error.strerror}")
        sys.exit(1)


if __name__ == "__main__":
    main()
