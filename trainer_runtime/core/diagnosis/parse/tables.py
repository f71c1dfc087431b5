"""Tables: a header names the columns, and each row below it has a number in each.

As CSV loggers of Lightning, Keras and LitGPT write them, and notebooks show Trainer's metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainer_runtime.core.diagnosis.parse.names import MEASURED, STEP_NAMES, key_of
from trainer_runtime.core.diagnosis.parse.points import EPOCHS, Reading
from trainer_runtime.core.diagnosis.parse.quantities import number, step_number
from trainer_runtime.core.records import dataclass

# Later in a log no header is searched for: most logs have none.
HEADER_WITHIN_BYTES = 1 << 17
MOST_TABLES = 4
_SEPARATORS = (b"\t", b",", b";", b"  ")
_SPACES = re.compile(rb" {2,}")  # in a table that is aligned
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
)
_NAME = re.compile(rb"[A-Za-z_][\w /@.()-]{0,60}$")
_MOST_COLUMNS = 200
_TIME = re.compile(r"(?:^|_)time$")
# Notebooks write it where nothing was measured at that step.
_NOTHING = frozenset((b"", b"No log"))


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
            value = None if text in _NOTHING else number(text)
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
    end = 0
    for line in data.splitlines(keepends=True):
        if end >= within:
            return
        end += len(line)
        found = table_of(line.rstrip(b"\r\n"))
        if found is not None:
            yield end, found


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
    if not any(key in MEASURED or str(key).startswith("val_loss/") for key in keys):
        return None
    if separator == _SEPARATORS[-1]:
        keys = tuple(
            None if _TIME.search(name) else key for key, name in zip(keys, names, strict=True)
        )
    return Table(line, separator, keys, at, not steps)


def _cells(line: bytes, separator: bytes) -> list[bytes]:
    if separator == _SEPARATORS[-1]:
        return _SPACES.split(line.strip())
    return line.split(separator)
