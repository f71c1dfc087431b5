"""SECURITY.md: each promise names tests that exist, and that `make test-attack` runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| (?P<promise>[^|]+) \| (?P<tests>`tests/[^|]+) \|$", re.MULTILINE)
_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_MARKED = re.compile(r"pytest\.mark\.attack\b")


def _promises() -> list[tuple[str, str, str]]:
    """Promise, file and test (empty: all of the file) of each row."""
    text = (ROOT / "SECURITY.md").read_text()
    section = text.partition("## Promises\n")[2].partition("\n## ")[0]
    rows = [(row["promise"], row["tests"]) for row in _ROW.finditer(section)]
    assert len(rows) == section.count("\n| ") - 1, "a row of the table names no test"
    return [(promise, *named) for promise, tests in rows for named in _NAMED.findall(tests)]


@pytest.mark.parametrize(("promise", "file", "test"), _promises())
def test_each_promise_is_held_by_a_test_that_is_run_as_an_attack(
    promise: str, file: str, test: str
) -> None:
    path = ROOT / file
    assert path.is_file(), f"{promise}: {file} is missing"
    text = path.read_text()
    assert _MARKED.search(text), f"{file} is not part of make test-attack"
    assert not test or re.search(rf"^(?:async )?def {test}\(", text, re.MULTILINE), test


def test_every_file_of_attacks_holds_a_promise() -> None:
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/attack").glob("test_*.py")}
    assert files <= {file for _, file, _ in _promises()}
