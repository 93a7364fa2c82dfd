"""Coverage-guided fuzzing of one reader of a peer's bytes; `scripts/fuzz` runs them all.

    python tests/fuzz/fuzz.py READER [FOLDER ...] [-max_total_time=60]

New inputs go to the first FOLDER. Needs the extra `fuzz`. Whatever is no refusal ends it, with a traceback.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["cutlayer", "support"]):
    from support.decoders import DECODERS, REFUSALS


def main() -> None:
    """Fuzz until told to stop."""
    name, *options = sys.argv[1:] or [""]
    if name not in DECODERS:
        raise SystemExit(f"name one of: {', '.join(DECODERS)}")
    read = DECODERS[name].read

    def once(data: bytes) -> None:
        with suppress(*REFUSALS):
            read(data)

    atheris.Setup([sys.argv[0], *options], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
