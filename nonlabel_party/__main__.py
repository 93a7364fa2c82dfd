"""`python -m cutlayer.nonlabel_party FILE`, or `python -m nonlabel_party FILE` in a checkout."""

import typer

from cutlayer.nonlabel_party.process import command

if __name__ == "__main__":
    typer.run(command)
