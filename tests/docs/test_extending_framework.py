"""docs/extending.md, `A framework`: followed to the letter in a copy, it makes a framework."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
_REPOSITORY = Path(__file__).resolve().parents[2]
_COPIED = ("server/trainmaster", "trainer_runtime", "templates", "skills", "tests/support")
_FILES = ("pyproject.toml", "tests/conftest.py", "tests/contract/test_frameworks.py")
_STEP = re.compile(r"^### \d\. `([^`]+)`.*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Steps that change a file: the line after which the step's text stands, or which it replaces.
_REPLACED = {"trainer_runtime/core/frameworks/__init__.py": "FrameworkName = "}
_EXTENDED = {"tests/contract/test_frameworks.py": "ROWS: Mapping[str, Row] = {"}


def test_a_framework_added_by_the_recipe_alone_keeps_the_contract(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for folder in _COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_REPOSITORY / folder, copy / folder, ignore=ignored)
    for file in _FILES:
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_REPOSITORY / file, copy / file)
    page = (_REPOSITORY / "docs/extending.md").read_text()
    steps = _STEP.findall(page.partition("\n## A framework\n")[2].partition("\n## ")[0])
    assert 1 <= len(steps) <= 5
    for file, text in steps:
        _follow(copy / file, file, text)

    written = [copy / file for file, _ in steps if file.endswith(".py")]
    _run(copy, "ruff", "check", *map(str, written))
    _run(copy, "pytest", "-q", "-p", "no:cacheprovider", str(written[-1]), "-k", "bigram or row")


def _follow(path: Path, file: str, text: str) -> None:
    if beginning := _REPLACED.get(file):
        (line,) = re.findall(rf"^{beginning}.*\n", path.read_text(), re.MULTILINE)
        path.write_text(path.read_text().replace(line, text))
    elif opening := _EXTENDED.get(file):
        before, line, after = path.read_text().partition(f"{opening}\n")
        assert line, f"{file} has no {opening!r}"
        path.write_text(before + line + text + after)
    else:
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def _run(copy: Path, module: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{copy}/server:{copy}"}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
