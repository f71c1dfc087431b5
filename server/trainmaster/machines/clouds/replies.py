"""Providers' replies, taken apart: only what is used, and nothing that is not what it should be.

A figure that is no number is as good as none; an unknown word is kept, so that a new one of theirs
does not hide a box.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from trainer_runtime.core.protocol.text import shown

# What may become a word of a command line: an ssh client takes a leading dash for an option.
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LONGEST_NAME = 80
_LARGEST_FIGURE = 1e9


class Reply(BaseModel):
    """A part of a reply; what is not named here is ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


Row = TypeVar("Row", bound=Reply)


def figure(value: Any) -> float | None:
    """A positive number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value) if abs(value) < _LARGEST_FIGURE else math.inf
    return number if 0 < number < _LARGEST_FIGURE else None


def name(value: Any) -> str:
    """A name as it may be shown and compared; "" for what is none."""
    return shown(value.encode(errors="replace"))[:_LONGEST_NAME] if isinstance(value, str) else ""


def _id(value: Any) -> Any:
    """Some providers number their machines."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else value


def _address(value: Any) -> str | None:
    return value if isinstance(value, str) and _ADDRESS.fullmatch(value) else None


def _user(value: Any) -> str | None:
    return value if isinstance(value, str) and _USER.fullmatch(value) else None


def _port(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value < 1 << 16 else None


def _rows(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _time(value: Any) -> float | None:
    """Unix seconds, of those or of an ISO date."""
    if not isinstance(value, str):
        return figure(value)
    try:
        told = datetime.fromisoformat(value)
        return (told if told.tzinfo else told.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


# What is sent back to the provider, or typed by somebody, is taken as it is or not at all.
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
Label = Annotated[str, StringConstraints(pattern=r"^[!-~]([ -~]{0,98}[!-~])?$")]
Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 53)]
Figure = Annotated[float | None, BeforeValidator(figure)]
Name = Annotated[str, BeforeValidator(name)]
Id = Annotated[str, BeforeValidator(_id)]
Address = Annotated[str | None, BeforeValidator(_address)]
User = Annotated[str | None, BeforeValidator(_user)]
Port = Annotated[int | None, BeforeValidator(_port)]
Time = Annotated[float | None, BeforeValidator(_time)]
Rows = Annotated[list[Any], BeforeValidator(_rows)]


class Described(Reply):
    """A box."""

    id: Id


def readable(rows: Sequence[Any], kind: type[Row]) -> tuple[list[Row], int]:
    """Those rows that can be read, and how many can't."""
    found = []
    for row in rows:
        try:
            found.append(kind.model_validate(row))
        except ValidationError:
            continue
    return found, len(rows) - len(found)


def is_safe_id(provider_id: str) -> bool:
    """Whether an id may stand in a box's own command."""
    return _SAFE_ID.fullmatch(provider_id) is not None
