"""`python -m cutlayer.label_party FILE`, or `python -m label_party FILE` in a checkout."""

import typer

from cutlayer.label_party.process import command

if __name__ == "__main__":
    typer.run(command)
