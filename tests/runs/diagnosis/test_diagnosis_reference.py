"""docs/diagnosis.md names every code with its meaning and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.benchmarks.accuracy import section

from scripts.pages.diagnosis import every_code, reference
from trainer_runtime.core.diagnosis.remedies import LADDER, REMEDIES

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "diagnosis.md"
# Reported only so that the log line is not mistaken for a failure.
_NEEDS_NOTHING = {"benign_tokenizers_fork"}


def test_the_page_is_up_to_date() -> None:
    assert _PAGE.read_text() == reference() + section()


@pytest.mark.parametrize("code", sorted(every_code()))
def test_every_code_has_a_meaning_and_a_remedy(code: str) -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in _PAGE.read_text().splitlines()
        if line.startswith(f"| `{code}` |")
    ]
    assert rows
    for _, meaning, remedy, patches in rows:
        assert meaning
        assert remedy or patches or code in _NEEDS_NOTHING


@pytest.mark.parametrize("name", sorted({rung.id for rung in LADDER} | set(REMEDIES)))
def test_every_patch_is_explained(name: str) -> None:
    assert f"| `{name}` |" in _PAGE.read_text().partition("## Patches")[2]
