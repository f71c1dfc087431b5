"""The order of the files among several workers: what takes longest is started first.

A long file that one worker begins at the end keeps everybody waiting for it. How long each file
takes is noted in `tests/file_seconds.json`; `UPDATE_FILE_SECONDS=1 make test` measures again what
it runs.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

_NOTED = Path(__file__).parents[2] / "file_seconds.json"
# Shorter ones fill whatever is left in whichever order.
_SHORTEST_S = 2.0


def longest_first(items: list[pytest.Item]) -> None:
    """Sort the tests by their files' durations; within a file they keep their order."""
    noted = noted_seconds()
    items.sort(key=lambda item: -noted.get(_name(item.nodeid), 0.0))


def noted_seconds() -> Mapping[str, float]:
    """How long the files took whose durations are noted."""
    noted: Mapping[str, float] = json.loads(_NOTED.read_text())
    return noted


class FileSeconds:
    """How long the files took in this session."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add(self, report: pytest.TestReport) -> None:
        self._seconds[_name(report.nodeid)] += report.duration

    def write_if_wanted(self) -> None:
        """Note them for the next sessions where `UPDATE_FILE_SECONDS` says so."""
        if self._seconds and os.environ.get("UPDATE_FILE_SECONDS") and _NOTED.exists():
            root = _NOTED.parents[1]
            kept = {name: s for name, s in noted_seconds().items() if (root / name).exists()}
            _NOTED.write_text(_text({**kept, **self._seconds}.items()))


def _text(seconds: Iterable[tuple[str, float]]) -> str:
    ordered = sorted(seconds, key=lambda pair: -pair[1])
    return json.dumps({n: round(s, 1) for n, s in ordered if s >= _SHORTEST_S}, indent=2) + "\n"


def _name(nodeid: str) -> str:
    """The file's path from the project's folder."""
    return nodeid.split("::", maxsplit=1)[0]
