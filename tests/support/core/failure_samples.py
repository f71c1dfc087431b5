"""What failing trainings print: per code several wordings, of many releases. Written for the tests.

`failures/<code>.txt` holds them, a line `=====` between two. The texts follow the programs' own
format strings, with names and numbers of ours.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "failures"


def _texts(path: Path) -> tuple[str, ...]:
    return tuple(text.strip("\n") for text in path.read_text().split("\n=====\n"))


# code -> texts; the code has to be the first finding of each.
FAILURES: dict[str, tuple[str, ...]] = {
    path.stem: _texts(path) for path in sorted(_FOLDER.glob("*.txt"))
}
