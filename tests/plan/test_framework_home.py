"""What the client does differently for a framework stands in that framework's record."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

from trainmaster.plan.fields.document import FrameworkName
from trainmaster.plan.frameworks import FRAMEWORKS

_CLIENT = Path(__file__).resolve().parents[2] / "server" / "trainmaster"
_HOME = _CLIENT / "plan" / "frameworks"
# `hf` is a format of data and `script` a section of the spec as well.
_NAMES = {"nanogpt", "litgpt", "trl"}
_ALLOWED = {
    "plan/fields/document.py": "the closed list that a spec is checked by",
    "plan/decisions/requirements.py": "packages of these names",
    "runs/planning/hf_config.py": "the kind of a model whose folder names none",
}


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


def test_no_framework_is_named_or_compared_outside_its_record() -> None:
    named, compared = set(), set()
    for path in _CLIENT.rglob("*.py"):
        if path.is_relative_to(_HOME):
            continue
        tree, place = ast.parse(path.read_bytes()), path.relative_to(_CLIENT).as_posix()
        named |= {place} if _named(tree) else set()
        compared |= {place} if _compared(tree) else set()
    assert named == set(_ALLOWED)
    assert not compared


def test_every_framework_of_the_spec_has_a_record_in_a_module_of_its_name() -> None:
    assert tuple(FRAMEWORKS) == get_args(FrameworkName)
    for name in FRAMEWORKS:
        assert (_HOME / f"{name}.py").is_file()
