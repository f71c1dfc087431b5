"""The lines of `events.jsonl` and `supervisor.jsonl`, and the trainer's exit codes.

One JSON object a line, `{"v": 1, "seq": n, "t": unix seconds, "kind": ...}`. Floats stand at full
precision; NaN and the infinities are the strings `NaN`, `Infinity`, `-Infinity`, since JSON has no
words for them and readers disagree about the invented ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from trainer_runtime.core.decoding import (
    DecodingError,
    LimitError,
    decode_value,
    named,
    number,
)
from trainer_runtime.core.decoding.limits import COUNTS_END, TIMES_END
from trainer_runtime.core.protocol.event import Event

__all__ = [
    "ATTACHED",
    "FORMAT_VERSION",
    "ODD_FIELDS",
    "OLDEST_FORMAT_VERSION",
    "Event",
    "ExitCode",
    "ProtocolError",
    "RefusedLineError",
    "complete_lines",
    "decode",
    "encode",
    "finite_or_named",
    "named",
    "number",
]

FORMAT_VERSION = 1
OLDEST_FORMAT_VERSION = 1
ATTACHED = "attached"  # the framework of an attached run: started by others and only watched

# What reading the fields of a known kind of event raises if they are invalid: it is of another
# version, or its file is damaged. Such an event is ignored.
ODD_FIELDS = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError)

_KINDS_OF_A_STEP = frozenset({"metric", "eval", "checkpoint", "history"})


class ExitCode(IntEnum):
    """What the trainer's exit code says to the supervisor."""

    COMPLETE = 0  # together with a `completed` event; without one it is not
    SAVED_ON_SIGTERM = 75
    GUARD = 76
    UNUSABLE = 77
    PHASE_MISSED = 78


class ProtocolError(ValueError):
    """A line that is not an event of this version or the one before."""


class RefusedLineError(ProtocolError):
    """A line beyond the limits of what is read: no version of this runtime writes such a one."""


def encode(seq: int, time_s: float, kind: str, fields: Mapping[str, object]) -> bytes:
    """One event as a line of UTF-8 JSON, newline included."""
    event = {"v": FORMAT_VERSION, "seq": seq, "t": round(time_s, 6), "kind": kind, **fields}
    try:
        text = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(finite_or_named(event), ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate (of a file's name that is not valid UTF-8) becomes its JSON escape.
    return text.encode(errors="backslashreplace") + b"\n"


def decode(line: bytes) -> Event:
    """The event of one line; unknown fields and kinds are the reader's to ignore.

    Raises:
        ProtocolError: it is not a JSON object with `v`, `seq`, `t` and `kind`, of a version that
            this runtime does not read, or without the step and values that its kind has.
        RefusedLineError: it is too long or too deep, or its `seq` or `t` is out of range.
    """
    try:
        event = decode_value(line, "")
    except LimitError as error:
        raise RefusedLineError(error.problem) from None
    except DecodingError as error:
        raise ProtocolError(str(error)) from None
    if not isinstance(event, dict):
        raise ProtocolError("not a JSON object")
    version, seq, t, kind = event.get("v"), event.get("seq"), event.get("t"), event.get("kind")
    if not isinstance(version, int) or not OLDEST_FORMAT_VERSION <= version <= FORMAT_VERSION:
        raise ProtocolError(f"format version {version!r} is not read here")
    if not isinstance(kind, str) or type(seq) is not int:
        raise ProtocolError("`kind` or `seq` is missing")
    if isinstance(t, bool) or not isinstance(t, (int, float)):
        raise ProtocolError("`t` is missing")
    if not 0 <= seq < COUNTS_END:
        raise RefusedLineError("has a `seq` out of range")
    if not 0 <= t < TIMES_END:
        raise RefusedLineError("has a `t` that is not between 1970 and 9999")
    if kind in _KINDS_OF_A_STEP and not _is_count(event.get("step")):
        raise ProtocolError("`step` is missing")
    if not isinstance(event.get("values") or {}, dict):
        raise ProtocolError("`values` is not an object")
    return Event(seq, t, kind, event)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < COUNTS_END


def finite_or_named(value: Any) -> Any:
    """`value` with every non-finite float, at any depth, replaced by its name."""
    if isinstance(value, float):
        return value if math.isfinite(value) else named(value)
    if isinstance(value, Mapping):
        return {key: finite_or_named(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [finite_or_named(item) for item in value]
    return value


def complete_lines(data: bytes) -> tuple[list[bytes], int]:
    """The whole lines at the start of `data`, without their ends, and how many bytes they took.

    What follows the last newline is a line still being written, and is left for the next read.
    """
    end = data.rfind(b"\n") + 1
    return [line for line in data[:end].split(b"\n") if line.strip()], end
