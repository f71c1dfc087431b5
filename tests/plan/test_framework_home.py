"""What is done differently for a framework stands in its records: planning's, the host's."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

from trainer_runtime.core import frameworks as host
from trainer_runtime.core.frameworks import FrameworkName
from trainmaster.plan.frameworks import FRAMEWORKS

_ROOT = Path(__file__).resolve().parents[2]
# The records, and what knows a framework's loop, log and checkpoints.
_HOMES = (
    "server/trainmaster/plan/frameworks/",
    "trainer_runtime/core/diagnosis/parse/dialects/",
    "trainer_runtime/core/frameworks/",
    "trainer_runtime/train/foreign/",
    "trainer_runtime/train/hf/",
    "trainer_runtime/train/litgpt/",
    "trainer_runtime/train/nanogpt/",
    "trainer_runtime/train/trl/",
)
# `hf` is a format of data and `script` a section of the spec as well.
_NAMES = {"nanogpt", "litgpt", "trl"}
_ALLOWED = {
    "trainer_runtime/core/diagnosis/signatures/catalogue/frameworks.py": "packages of these names",
    "trainer_runtime/core/files/model_folder.py": "a layout of models",
}
# Of other modules nothing is parsed.
_WRITTEN = re.compile(rf"""["']({"|".join({*_NAMES, *get_args(FrameworkName)})})["']""")


def _named(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Constant) and node.value in _NAMES for node in ast.walk(tree))


def _compared(tree: ast.AST) -> bool:
    """Whether a framework is compared with a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = {getattr(side, "attr", getattr(side, "id", "")) for side in sides}
            texts = [
                part
                for side in sides
                for part in ast.walk(side)
                if isinstance(part, ast.Constant) and part.value in get_args(FrameworkName)
            ]
            if "framework" in names and texts:
                return True
    return False


def test_no_framework_is_named_or_compared_outside_its_home() -> None:
    named, compared = set(), set()
    for tree in ("server/trainmaster", "trainer_runtime"):
        for path in (_ROOT / tree).rglob("*.py"):
            place = path.relative_to(_ROOT).as_posix()
            if not place.startswith(_HOMES) and _WRITTEN.search(text := path.read_text()):
                parsed = ast.parse(text)
                named |= {place} if _named(parsed) else set()
                compared |= {place} if _compared(parsed) else set()
    assert named == set(_ALLOWED)
    assert not compared


def test_every_framework_has_both_records_under_its_name() -> None:
    for records in (FRAMEWORKS, host.FRAMEWORKS):
        assert tuple(records) == get_args(FrameworkName)
        assert [record.name for record in records.values()] == [*records]
    assert {name for name, record in FRAMEWORKS.items() if record.runs_program} == {
        name for name, record in host.FRAMEWORKS.items() if not record.is_patched
    }
