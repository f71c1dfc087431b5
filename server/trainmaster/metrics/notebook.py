"""The text that the cells of a notebook have put out, in their order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

_ROW = re.compile(r"<tr\b[^>]*>(.*?)</tr>", re.DOTALL | re.IGNORECASE)
_CELL = re.compile(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?$")
# Of the table that transformers' trainer draws in a notebook.
_COLUMNS = {
    "Step": "step",
    "Epoch": "epoch",
    "Training Loss": "loss",
    "Validation Loss": "eval_loss",
}


def notebook_text(notebook: Any) -> str:
    """The outputs of all cells: streams, results, errors, and tables of losses as JSON lines.

    Raises:
        ValueError: it is not a notebook.
    """
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError("no cells")
    parts = [text for cell in cells for output in _outputs(cell) for text in _texts(output)]
    return "".join(part if part.endswith(("\n", "\r")) else f"{part}\n" for part in parts if part)


def _outputs(cell: Any) -> list[dict[str, Any]]:
    outputs = cell.get("outputs") if isinstance(cell, dict) else None
    return (
        [output for output in outputs if isinstance(output, dict)]
        if isinstance(outputs, list)
        else []
    )


def _texts(output: dict[str, Any]) -> Iterator[str]:
    if output.get("output_type") == "error":
        yield _joined(output.get("traceback"), "\n")
    elif "text" in output:
        yield _joined(output["text"], "")
    elif isinstance(data := output.get("data"), dict):
        table = "".join(_table(_joined(data.get("text/html"), "")))
        yield table or _joined(data.get("text/plain"), "")


def _joined(value: Any, separator: str) -> str:
    if isinstance(value, list):
        return separator.join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _table(html: str) -> Iterator[str]:
    """A line of JSON for each row of a table with a column of training losses."""
    rows = [
        [unescape(_TAG.sub("", cell)).strip() for cell in _CELL.findall(row)]
        for row in _ROW.findall(html)
    ]
    if not rows or "Training Loss" not in rows[0] or not {"Step", "Epoch"} & set(rows[0]):
        return
    names = [_COLUMNS.get(name, name.lower().replace(" ", "_")) for name in rows[0]]
    for row in rows[1:]:
        values = {
            name: float(text) if "." in text or "e" in text else int(text)
            for name, text in zip(names, row, strict=False)
            if _NUMBER.match(text)
        }
        if values:
            yield json.dumps(values) + "\n"
