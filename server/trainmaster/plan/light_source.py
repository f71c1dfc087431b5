"""Python source without its comments and docstrings, where every line keeps its number."""

from __future__ import annotations

import ast
import re

_COMMENT = re.compile(rb"\s*#")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def light_source(source: bytes) -> bytes:
    """The same program: tracebacks name the same lines. Docstrings are empty in it.

    Raises:
        SyntaxError: it isn't Python.
    """
    lines = source.split(b"\n")
    texts: set[int] = set()  # lines that begin within a text
    docstrings: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno is not None:
            texts.update(range(node.lineno, node.end_lineno))
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            statement = node.body[0]
            assert isinstance(statement, ast.Expr)
            docstrings.append(statement.value)
    for index, line in enumerate(lines):
        if index not in texts and _COMMENT.match(line):
            lines[index] = b""
    for text in docstrings:
        _empty(lines, text)
    return b"\n".join(lines)


def _empty(lines: list[bytes], text: ast.expr) -> None:
    """Offsets of columns are in bytes."""
    first, last = text.lineno - 1, (text.end_lineno or text.lineno) - 1
    rest = lines[last][text.end_col_offset :]
    lines[first : last + 1] = [
        lines[first][: text.col_offset] + b"''" + (rest if last == first else b""),
        *([b""] * (last - first - 1)),
        *([rest] if last > first else []),
    ]
