"""Each capability that is said to work names a test that exists, or a command."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parents[1]
_PAGE = (_TESTS.parent / "docs/capabilities.md").read_text()
_ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in _PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| capability")
]


@cache
def names_in(file: str) -> frozenset[str]:
    path = _TESTS / file
    nodes = ast.walk(ast.parse(path.read_text())) if path.is_file() else ()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in nodes if isinstance(node, functions))


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row[0][:40])
def test_a_capability_names_a_proof_that_exists(row: list[str]) -> None:
    capability, status, proof = row
    assert capability and status
    named = re.findall(r"`([^`]+)`", proof)
    assert bool(named) or status.startswith("missing"), "without a proof"
    for item in named:
        file, is_test, name = item.partition("::")
        if is_test:
            assert name in names_in(file), item
        else:
            assert item.startswith("trainmaster "), item
