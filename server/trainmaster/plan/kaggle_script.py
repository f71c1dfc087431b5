"""Packs one session of a run into the script that is pushed to Kaggle."""

from __future__ import annotations

import ast
import base64
import bz2
import io
import json
import re
import tarfile
from collections.abc import Iterable, Mapping

from trainer_runtime.core.kaggle.session_order import ORDER, RUN_FOLDER, KernelOrder
from trainer_runtime.core.protocol.desired import Desired
from trainmaster.home.assets import Assets
from trainmaster.plan.templates import rendered

_RUNTIME = "trainer_runtime/"
# Answers about a host, and clusters: no session asks for them, and a script has a bound.
LEFT_OUT = tuple(
    f"{_RUNTIME}{name}"
    for name in (
        "host/answer/ask_image.py",
        "host/answer/check",
        "host/answer/examine_input.py",
        "host/answer/gc.py",
        "host/answer/left_runs.py",
        "host/answer/reach.py",
        "host/answer/receive.py",
        "host/answer/sample.py",
        "host/answer/try_folder.py",
        "host/slurm/",
        "core/answers/slurm.py",
    )
)
_TEMPLATE = "launch/kaggle.py.j2"
_WIDTH = 96
_COMMENT = re.compile(rb"\s*#")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def kernel_script(
    order: KernelOrder, files: Mapping[str, bytes], desired: Desired, assets: Assets
) -> str:
    """The script of a session; the same text for the same input.

    `files`: the run's bundle, `trainer_runtime/` included. No secret may be among them: a kernel's
    script is kept by Kaggle for as long as the kernel is.
    """
    packed = bz2.compress(_archive(_members(order, files, desired)))
    text = base64.b85encode(packed).decode()  # which has neither quotes nor backslashes
    lines = [text[at : at + _WIDTH] for at in range(0, len(text), _WIDTH)]
    return rendered(assets, _TEMPLATE, {"payload": "\n".join(lines)})


def _members(
    order: KernelOrder, files: Mapping[str, bytes], desired: Desired
) -> Iterable[tuple[str, bytes]]:
    """The runtime is packed once, at the top: the session runs it and copies it to the run. What
    only a cluster runs stays away, as Kaggle bounds a script."""
    yield ORDER, _json(order.to_dict())
    yield f"{RUN_FOLDER}/desired.json", _json(desired.to_dict())
    for path, data in files.items():
        if path.startswith(LEFT_OUT):
            continue
        if not path.startswith(_RUNTIME):
            yield f"{RUN_FOLDER}/{path}", data
        else:
            yield path, light_source(data) if path.endswith(".py") else data


def _archive(members: Iterable[tuple[str, bytes]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in sorted(members):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


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
