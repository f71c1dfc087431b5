"""The client starts the programs that docs/design/local-programs.md argues about, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.attack

_ROOT = Path(__file__).resolve().parents[2]
_CLIENT = _ROOT / "server" / "trainmaster"
_PAGE = _ROOT / "docs" / "design" / "local-programs.md"
_STARTS = re.compile(
    r"subprocess\.(run|Popen|call|check_call|check_output|getoutput|getstatusoutput)"
    r"|(.*\.)?(create_subprocess_(exec|shell)|Popen|subprocess_(exec|shell))"
    r"|os\.(system|popen|fork|forkpty|posix_spawnp?|exec\w+|spawn\w+|startfile)"
    r"|pty\.\w+|webbrowser\.\w+|(.*\.)?(Process|ProcessPoolExecutor|Pool)"
)
# Whatever starts something has such a name in it, perhaps over several lines.
_NAMES = re.compile(_STARTS.pattern.replace(r"(.*\.)?", ""))


def _starts(module: Path) -> Iterator[tuple[str, str]]:
    """The functions of a module that start something."""

    def walk(node: ast.AST, function: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from walk(child, child.name)
                continue
            if isinstance(child, ast.Call) and _STARTS.fullmatch(ast.unparse(child.func)):
                yield function
            yield from walk(child, function)

    text = module.read_text()
    if _NAMES.search(re.sub(r"\s", "", text)):
        name = module.relative_to(_CLIENT).as_posix()
        yield from ((name, function) for function in walk(ast.parse(text), ""))


def test_every_place_that_starts_a_program_is_on_the_list_and_no_other() -> None:
    there = {one for module in _CLIENT.rglob("*.py") for one in _starts(module)}
    rows = re.findall(r"^\| `([\w/]+\.py)` `(\w+)` \|", _PAGE.read_text(), re.MULTILINE)
    assert sorted(there) == sorted(rows)


def test_starting_functions_are_imported_by_no_other_name() -> None:
    """`from subprocess import run` would hide a call from the test above."""
    hidden = [
        f"{module.relative_to(_CLIENT)}: {ast.unparse(node)}"
        for module in _CLIENT.rglob("*.py")
        if re.search(r"from\s+(subprocess|pty|webbrowser|asyncio)\b", text := module.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        and node.module in ("subprocess", "pty", "webbrowser", "asyncio.subprocess")
    ]
    assert hidden == []
