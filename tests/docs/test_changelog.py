"""CHANGELOG.md: versions with dates, the newest that of the project, each short enough to read."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import tomllib

_ROOT = Path(__file__).parents[2]
_HEADING = re.compile(r"(\d+)\.(\d+)\.(\d+) - (\d{4}-\d\d-\d\d)")
_MOST_LINES = 150


def _sections() -> dict[str, str]:
    _, *parts = re.split(r"^## ", (_ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def test_unreleased_changes_come_first_and_versions_follow_from_the_newest() -> None:
    first, *released = _sections()
    assert first == "Unreleased"
    matches = [_HEADING.fullmatch(heading) for heading in released]
    assert released and all(matches), released
    versions = [(*map(int, match.groups()[:3]), match[4]) for match in matches if match]
    assert all(newer > older for newer, older in pairwise(versions))


def test_the_newest_version_is_the_projects() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    assert list(_sections())[1].partition(" ")[0] == project["version"]


def test_a_version_is_described_in_lines_that_somebody_reads() -> None:
    lengths = {name: len(text.splitlines()) for name, text in _sections().items()}
    assert [name for name, length in lengths.items() if length > _MOST_LINES] == []
