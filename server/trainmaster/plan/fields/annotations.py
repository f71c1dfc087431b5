"""The annotation of every field of the spec, and the types of fields.

From a field's annotation come the reference docs, the mapping to each framework, what a resume or
the supervisor may change, and which values an error lists as accepted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from trainer_runtime.core.answers.sampled import LONGEST_PROMPT
from trainer_runtime.core.protocol.duration import ACCEPTED as DURATION_ACCEPTED
from trainer_runtime.core.protocol.duration import parse_duration
from trainmaster.errors.errors import UsageError
from trainmaster.plan.fields.place import Place, place

# Who may change a field once the run exists: nobody; the user, by a resume; the supervisor.
Changes = Literal["never", "resume", "box"]
# What a resume that changes a field keeps as the last attempt had it: `plan/changes`.
Keeps = Literal["batch", "schedule"]

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_ACCEPTED = (
    "1 to 63 letters, digits, dots, underscores and dashes, the first a letter or digit, "
    "without '..'"
)
# The largest share below 1.
BELOW_ONE = 0.999999
_SIZE = re.compile(r"[1-9][0-9]{0,5}[mgtMGT]")
_SHORT_COUNT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([kKmMbBtT])")
_MULTIPLES = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


class Section(BaseModel):
    """A mapping of the spec: unknown keys are refused and nothing is converted silently."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_default=False
    )


@dataclass(frozen=True, slots=True)
class Annotation:
    """Properties of a field besides its type and its text.

    `acts`: what of ours acts on it beside every framework; None where each has a place of its own.
    `keeps`: what a resume that changes it keeps, where nothing else is asked for.
    Pydantic stores it as the hook for the field's JSON schema, which it leaves unchanged.
    """

    changes: Changes
    acts: Place | None = None
    unit: str = ""
    keeps: Keeps | None = None

    def __call__(self, schema: dict[str, Any]) -> None:
        """Leaves the schema as it is."""


def setting(
    default: Any,
    text: str,
    *,
    changes: Changes,
    acts: str | Place | None = None,
    unit: str = "",
    keeps: Keeps | None = None,
) -> Any:
    """A field with its annotation; `default` is `...` where the user must give a value.

    `text` says what the field does and why its default is what it is; for the
    others see `Annotation`.
    """
    annotation = Annotation(changes, None if acts is None else place(acts), unit, keeps)
    if isinstance(default, (dict, list)):
        return Field(default_factory=default.copy, description=text, json_schema_extra=annotation)
    return Field(default, description=text, json_schema_extra=annotation)


def annotation_of(info: FieldInfo) -> Annotation:
    """The annotation that `setting` gave to a field.

    Raises:
        TypeError: the field was declared without one.
    """
    if not isinstance(info.json_schema_extra, Annotation):
        raise TypeError("a field of the spec was declared without `setting`")
    return info.json_schema_extra


@dataclass(frozen=True, slots=True)
class Accepts:
    """Describes what a type with its own validator accepts."""

    words: str


def _whole(value: Any) -> Any:
    # `2e9` is a float to YAML; as a count it is as good as its digits.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _tokens(value: Any) -> Any:
    """`1.5T` is its number; anything else stays as it was written."""
    count = count_of(value) if isinstance(value, str) else None
    return _whole(value) if count is None else count


def count_of(text: str) -> int | None:
    """The whole number of `1.5T` or `7B`; None for anything else."""
    written = _SHORT_COUNT.fullmatch(text)
    if written is None:
        return None
    count = Decimal(written[1]) * _MULTIPLES[written[2].lower()]
    return int(count) if count == int(count) else None


def _name(value: str) -> str:
    if not NAME_PATTERN.fullmatch(value) or ".." in value:
        raise ValueError(NAME_ACCEPTED)
    return value


def refuse_unsafe_name(name: str, what: str) -> None:
    """Raises: UsageError: `UNSAFE_NAME`; `what`: which name it should be."""
    if not NAME_PATTERN.fullmatch(name) or ".." in name:
        message = f"{name!r} is not a valid {what}."
        raise UsageError("UNSAFE_NAME", message, f"Use {NAME_ACCEPTED}.", field="name")


def _duration(value: str) -> str:
    parse_duration(value)
    return value


def _size(value: str) -> str:
    if not _SIZE.fullmatch(value):
        raise ValueError("not a size")
    return value


def _plain_text(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and "\0" in value:
        raise ValueError("a text without NUL")
    return value


# Whatever is counted or measured stays below; every reader of JSON keeps such a number whole.
LARGEST = 10**15

Auto = Literal["auto"]
Name = Annotated[str, AfterValidator(_name), Accepts(NAME_ACCEPTED)]
Duration = Annotated[str, AfterValidator(_duration), Accepts(DURATION_ACCEPTED)]
Size = Annotated[str, AfterValidator(_size), Accepts("a size such as 512m or 16g")]
Text = Annotated[str, BeforeValidator(_plain_text), Accepts("a text (quote what YAML would read)")]
Prompt = Annotated[
    str,
    BeforeValidator(_plain_text),
    MaxLen(LONGEST_PROMPT),
    Accepts(f"a text of at most {LONGEST_PROMPT:,} characters"),
]
FilePath = Annotated[str, AfterValidator(_plain_text), MinLen(1), Accepts("a path")]
Count = Annotated[int, BeforeValidator(_whole), Ge(1), Le(LARGEST)]
Tokens = Annotated[
    int,
    BeforeValidator(_tokens),
    Ge(1),
    Le(LARGEST),
    Accepts("a whole number >= 1, or such as 300k, 2M, 100B or 1.5T"),
]
CountOrZero = Annotated[int, BeforeValidator(_whole), Ge(0), Le(LARGEST)]
Workers = Annotated[int, BeforeValidator(_whole), Ge(0), Le(64)]
Seed = Annotated[int, BeforeValidator(_whole), Ge(0), Le(2**32 - 1)]
Layers = Annotated[int, BeforeValidator(_whole), Ge(1), Le(1024)]
Width = Annotated[int, BeforeValidator(_whole), Ge(1), Le(1 << 20)]
Positive = Annotated[float, Gt(0), Le(LARGEST)]
NotNegative = Annotated[float, Ge(0), Le(LARGEST)]
Share = Annotated[float, Ge(0), Le(1)]
# Of tokens: enough stay to predict the others by.
HiddenShare = Annotated[float, Ge(0.01), Le(0.8)]
Below1 = Annotated[float, Ge(0), Le(BELOW_ONE)]
