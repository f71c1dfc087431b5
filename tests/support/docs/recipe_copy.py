"""A copy of the product, in which a recipe of docs/extending.md is followed to the letter."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from trainmaster.home.paths import HOME_VARIABLE

_REPOSITORY = Path(__file__).resolve().parents[3]
_COPIED = ("server/trainmaster", "trainer_runtime", "templates", "scripts/pages")
_STEP = re.compile(r"^### \d\. `([^`]+)`")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIMEOUT_S = 600
_PROGRAMS = {
    "trainmaster": [sys.executable, "-c", "from trainmaster.cli import main; main()"],
    "python": [sys.executable],
}


class RecipeCopy:
    """`section`: the heading of a recipe. `files`: what its steps write or change."""

    def __init__(self, folder: Path, section: str) -> None:
        self.root = folder / "copy"
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        for name in _COPIED:
            # With what is compiled, but for what others are about to write.
            ignored = shutil.ignore_patterns("*.pyc.*")
            shutil.copytree(_REPOSITORY / name, self.root / name, ignore=ignored)
        page = (_REPOSITORY / "docs/extending.md").read_text()
        self._recipe = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        self.files: list[str] = []
        for part in re.split(r"^(?=### )", self._recipe, flags=re.MULTILINE):
            if (step := _STEP.match(part)) is not None:
                self._follow(step[1], part)

    def run(self, arguments: list[str], variables: Mapping[str, str] | None = None) -> str:
        """The output of a command that succeeds; what it runs is the copy."""
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.root}/server:{self.root}",
            HOME_VARIABLE: str(self.home),
            **(variables or {}),
        }
        done = subprocess.run(
            [*_PROGRAMS[arguments[0]], *arguments[1:]],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def try_it(self, variables: Mapping[str, str] | None = None) -> str:
        """The output of the one command at the recipe's end."""
        (block,) = (text for kind, text in _BLOCK.findall(self._recipe) if kind == "console")
        return self.run(shlex.split(block.removeprefix("$ ")), variables)

    def check_style(self) -> None:
        paths = [name for name in self.files if name.endswith(".py")]
        configuration = str(_REPOSITORY / "pyproject.toml")
        self.run(["python", "-m", "ruff", "check", "--config", configuration, *paths])
        self.run(["python", "-m", "ruff", "format", "--check", "--config", configuration, *paths])

    def _follow(self, name: str, step: str) -> None:
        path = self.root / name
        self.files.append(name)
        blocks = [block for block in _BLOCK.findall(step) if block[0] != "console"]
        assert blocks, f"the step of {name} has nothing to write"
        for kind, text in blocks:
            if kind == "diff":
                _change(path, text)
            else:
                assert not path.exists()
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)


def _change(path: Path, difference: str) -> None:
    lines = difference.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    text = path.read_text()
    assert text.count(before) == 1, f"{path} does not have once:\n{before}"
    path.write_text(text.replace(before, after))
