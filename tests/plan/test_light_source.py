"""Source without comments runs as before, and its tracebacks name the same lines."""

from __future__ import annotations

import ast

import pytest

from trainmaster.home.assets import find_assets
from trainmaster.plan.kaggle_script import light_source

_TRICKY = '''\
"""Module: ü."""; first = 1

# a comment
TEXT = """
# no comment
"""
JOINED = f"""
# none either {first}
"""


class Empty:
    """Alone.

    # within a docstring
    """


async def documented():
    'Two.' ; return "kept"  # stays
'''


def _shape(source: bytes) -> list[tuple[str, int]]:
    """Every node with its line; docstrings as if they were empty."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            node.body[0].value.value = ""  # type: ignore[attr-defined]
    return [
        (ast.dump(node, annotate_fields=False), getattr(node, "lineno", 0))
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
    ]


def test_texts_stay_and_lines_keep_their_numbers() -> None:
    source = _TRICKY.encode()
    light = light_source(source)
    assert _shape(light) == _shape(source)
    assert b"a comment" not in light and b"Alone" not in light and "ü".encode() not in light
    assert b"# no comment" in light and b"# none either" in light


@pytest.mark.parametrize("path", ["__main__.py", "core/decoding/fields.py"])
def test_files_of_the_runtime_are_the_same_program(path: str) -> None:
    source = (find_assets().runtime / path).read_bytes()
    light = light_source(source)
    assert _shape(light) == _shape(source)
    assert len(light) < len(source)
