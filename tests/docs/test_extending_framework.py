"""docs/extending.md, `A framework`: followed to the letter in a copy, it makes a framework."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.docs.recipe_copy import RecipeCopy

pytestmark = [pytest.mark.slow, pytest.mark.long]
_REPOSITORY = Path(__file__).resolve().parents[2]
_TESTED_BY = (
    *("skills", "tests/support"),
    *("pyproject.toml", "tests/conftest.py", "tests/contract/test_frameworks.py"),
)


def test_a_framework_added_by_the_recipe_keeps_the_contract(tmp_path: Path) -> None:
    for name in _TESTED_BY:
        place, copied = _REPOSITORY / name, tmp_path / "copy" / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir():
            shutil.copytree(place, copied, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, copied)
    copy = RecipeCopy(tmp_path, "A framework")
    copy.check_style()
    assert len(copy.files) == 5
    assert "3 passed" in copy.try_it()
