"""Parse providers' replies: only the fields that are used, each checked.

An invalid number counts as missing. An unknown status is kept, so that a new one at the provider
does not hide an instance.
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

# Values that become arguments of commands: ssh takes a leading dash for an option.
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MAX_NAME_CHARS = 80
_LARGEST_FIGURE = 1e9


class Reply(BaseModel):
    """A part of a reply; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


Row = TypeVar("Row", bound=Reply)


def figure(value: Any) -> float | None:
    """A positive number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value) if abs(value) < _LARGEST_FIGURE else math.inf
    return number if 0 < number < _LARGEST_FIGURE else None


def name(value: Any) -> str:
    """A name without control characters; "" for anything but a string."""
    return shown(value.encode(errors="replace"))[:_MAX_NAME_CHARS] if isinstance(value, str) else ""


def _id(value: Any) -> Any:
    """Some providers use numbers as ids."""
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
    """Unix seconds from a number or an ISO date."""
    if not isinstance(value, str):
        return figure(value)
    try:
        parsed = datetime.fromisoformat(value)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


# Values that are sent back to the provider, or typed by users, must match exactly.
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


class InstanceReply(Reply):
    """A part of a reply that describes an instance."""

    id: Id


def readable(rows: Sequence[Any], kind: type[Row]) -> tuple[list[Row], int]:
    """The rows that parse, and how many do not."""
    parsed = []
    for row in rows:
        try:
            parsed.append(kind.model_validate(row))
        except ValidationError:
            continue
    return parsed, len(rows) - len(parsed)


def is_safe_id(provider_id: str) -> bool:
    """Whether an id is safe in a command that runs on the instance."""
    return _SAFE_ID.fullmatch(provider_id) is not None
