"""`python -m cutlayer.label_party FILE`, or `python -m label_party FILE` in a checkout."""

import typer

from cutlayer.common.process import loading

if __name__ == "__main__":
    with loading():
        from cutlayer.label_party.process import command
    typer.run(command)
