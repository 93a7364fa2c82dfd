"""`python -m cutlayer.nonlabel_party FILE`, or `python -m nonlabel_party FILE` in a checkout."""

import typer

from cutlayer.common.process import loading

if __name__ == "__main__":
    with loading():
        from cutlayer.nonlabel_party.process import command
    typer.run(command)
