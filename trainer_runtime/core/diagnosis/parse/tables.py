"""Tables: a header names the columns, and each row below it has a number in each.

As CSV loggers of Lightning, Keras and LitGPT write them, and notebooks show Trainer's metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainer_runtime.core.diagnosis.parse.names import (
    MEASURED,
    STEP_NAMES,
    is_loss_by_another_name,
    key_of,
)
from trainer_runtime.core.diagnosis.parse.points import EPOCHS, Reading
from trainer_runtime.core.diagnosis.parse.quantities import number, step_number

# Later in a log no header is searched for: most logs have none.
HEADER_WITHIN_BYTES = 1 << 17
MOST_TABLES = 4
_SPACES, _BOX = b"  ", b"|"
_SEPARATORS = (_BOX, b"\t", b",", b";", _SPACES)
_SEVERAL_SPACES = re.compile(rb" {2,}")  # in a table that is aligned
_SIGNS = (
    b"tep\t",
    b"tep,",
    b"tep;",
    b"poch\t",
    b"poch,",
    b"poch;",
    b",step",
    b"\tstep",
    b"poch  ",
    b"Iter  ",
    b"tep |",
    b"poch |",
    b"tep  ",
    b"ter |",
)
_NAME = re.compile(rb"[A-Za-z_][\w /@.():-]{0,60}$")
_MOST_COLUMNS = 200
_TIME = re.compile(r"(?:^|_)time(?:$|_)")
# Notebooks write it where nothing was measured at that step.
_NOTHING = frozenset((b"", b"No log", b"-"))


@dataclass(frozen=True, slots=True)
class Table:
    """The rows below a header. `keys[i]` is what column i holds, None for what is not read."""

    header: bytes
    separator: bytes
    keys: tuple[str | None, ...]
    step_column: int
    counts_epochs: bool

    @property
    def literal(self) -> bytes:
        """Bytes that every row has."""
        return self.separator

    def read(self, line: bytes) -> Reading | None:
        """The content of a row; None for a line of another shape."""
        cells = _cells(line, self.separator)
        if len(cells) != len(self.keys):
            return None
        step = step_number(cells[self.step_column].strip())
        if step is None:
            return None
        values: dict[str, float] = {}
        for key, cell in zip(self.keys, cells, strict=True):
            text = cell.strip()
            if key is None:
                continue
            value = None if text in _NOTHING else number(text.rstrip(b"%"))
            if value is None and text not in _NOTHING:
                return None
            if value is not None:
                values.setdefault(key, value)
        return Reading(EPOCHS if self.counts_epochs else "table", list(values.items()), step=step)


def headers_in(data: bytes, within: int) -> Iterator[tuple[int, Table]]:
    """The tables whose headers stand in a block of whole lines and begin `within` so many bytes,
    each with the end of its header."""
    if not any(sign in data for sign in _SIGNS):
        return
    end, above = 0, b""
    for whole_line in data.splitlines(keepends=True):
        if end >= within:
            return
        end += len(whole_line)
        line = whole_line.rstrip(b"\r\n")
        found = table_of(line) or table_of(_of_two_lines(above, line))
        above = line
        if found is not None:
            yield end, found


def _of_two_lines(above: bytes, line: bytes) -> bytes:
    """The header whose names begin on the line above; nothing if it has no frame."""
    if not line.startswith(_BOX) or above.count(_BOX) != line.count(_BOX):
        return b""
    pairs = zip(_cells(above, _BOX), _cells(line, _BOX), strict=True)
    return _BOX + _BOX.join([b" ".join((*one.split(), *other.split())) for one, other in pairs])


def begun_header(data: bytes) -> int | None:
    """Where the last line begins, if names may stand on the next one, too."""
    begin = data.rfind(b"\n", 0, -1) + 1
    line = data[begin:].strip()
    may_be = line.startswith(_BOX) and any(sign in line for sign in _SIGNS)
    return begin if may_be and table_of(line) is None else None


def table_of(line: bytes) -> Table | None:
    """The table that a line heads; None for any other line, and for a table without a metric."""
    separator = next((one for one in _SEPARATORS if one in line), None)
    if separator is None:
        return None
    cells = [cell.strip().strip(b'"') for cell in _cells(line, separator)]
    if len(cells) > _MOST_COLUMNS or not all(map(_NAME.match, cells)):
        return None
    names = [cell.decode().lower().replace(" ", "_") for cell in cells]
    steps = [at for at, name in enumerate(names) if name in STEP_NAMES]
    epochs = [at for at, name in enumerate(names) if name == "epoch"]
    at = next(iter(steps or epochs), None)
    if at is None:
        return None
    keys = tuple(None if column in steps else key_of(name) for column, name in enumerate(names))
    if "loss" not in keys:  # it may have another name
        own = next(filter(is_loss_by_another_name, filter(None, keys)), None)
        keys = tuple("loss" if own is not None and key == own else key for key in keys)
    if not any(key in MEASURED or str(key).startswith("val_loss/") for key in keys):
        return None
    if separator in (_SPACES, _BOX):
        keys = tuple(
            None if _TIME.search(name) else key for key, name in zip(keys, names, strict=True)
        )
    return Table(line, separator, keys, at, not steps)


def _cells(line: bytes, separator: bytes) -> list[bytes]:
    if separator == _SPACES:
        return _SEVERAL_SPACES.split(line.strip())
    return (line.strip().strip(_BOX) if separator == _BOX else line).split(separator)
