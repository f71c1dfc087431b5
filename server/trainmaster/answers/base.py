"""The base of all answers, and the types that several of them share.

A tool's structured content and a command's `--json` are the same text. None is omitted, except
where null has a meaning (`resume_from`).

Serializing is the border for words: any string of an answer may come from a host, a cloud or an
agent, so all of them, and the keys of maps, are cleaned there.
"""

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, dataclass_transform

from trainer_runtime.core.decoding import named
from trainer_runtime.core.protocol.figures import rounded
from trainer_runtime.core.protocol.text import cleaned
from trainmaster.answers.fields import (
    REQUIRED,
    AnswerField,
    as_floats,
    declared_fields,
    field,
    takes_floats,
)
from trainmaster.answers.fitting import Cap, Fields, fit
from trainmaster.errors.advice import for_face

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

State = Literal[
    "planned",
    "preparing",
    "queued",
    "running",
    "recovering",
    "stopping",
    "completed",
    "failed",
    "stopped",
    "lost",
]
# A metric's value; the strings are the ones that aren't finite.
Number = float | Literal["NaN", "Infinity", "-Infinity"]

ON_COMMAND_LINE: Mapping[str, Any] = MappingProxyType({"face": "command line"})
WHY_OLD = "why the host could not be reached just now"
_LONGEST_TEXT = 4000
_LONGEST_DOCUMENT = 64_000
_LONGEST_KEY = 200
# Fields whose text is ours: they advise, and name commands.
_ADVICE = frozenset(
    {
        "advice",
        "explanation",
        "fix",
        "next_step",
        "note",
        "notes",
        "remedy",
        "risks",
        "unattended",
        "warnings",
    }
)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Answer:
    """Omits fields that are None, except those in `keep_null`.

    `documents`: fields whose text has several lines. `sampled`: its lists are columns of samples.

    We make answers ourselves, so that nothing validates them; a command that shows one does without
    Pydantic. What it does for tools, and for an answer that another process wrote, is in
    `validation.py`. The methods have the names that they have in Pydantic's models.
    """

    model_fields: ClassVar[dict[str, AnswerField]] = {}
    keep_null: ClassVar[frozenset[str]] = frozenset()
    documents: ClassVar[frozenset[str]] = frozenset()
    sampled: ClassVar[bool] = False
    _floats: ClassVar[frozenset[str]]

    def __init_subclass__(cls) -> None:
        cls.model_fields = {**cls.model_fields, **declared_fields(cls)}

    def __init__(self, **remaining: Any) -> None:
        fields, floats, values = self.model_fields, self._float_fields(), vars(self)
        for name, declared in fields.items():
            value = remaining.pop(name, declared.default)
            if value is REQUIRED:
                raise TypeError(f"{type(self).__name__} lacks {name}")
            values[name] = as_floats(value) if name in floats else value
        if remaining:
            raise TypeError(f"{type(self).__name__} has no {', '.join(remaining)}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from trainmaster.answers.validation import schema_of

        return schema_of(cls, handler)

    @classmethod
    def model_validate(cls, values: Mapping[str, Any] | Self) -> Self:
        """The answer with these fields. Raises: pydantic.ValidationError."""
        from trainmaster.answers.validation import adapter_of

        made: Self = adapter_of(cls).validate_python(values)
        return made

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """The answer that another process wrote. Raises: pydantic.ValidationError."""
        from trainmaster.answers.validation import adapter_of

        made: Self = adapter_of(cls).validate_json(text)
        return made

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """The same with other values of some fields."""
        made = type(self).__new__(type(self))
        vars(made).update(vars(self), **(update or {}))
        return made

    def model_dump(self, *, context: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What others see of it, as values of JSON; `context`: `ON_COMMAND_LINE`, or none."""
        return self.advising().outgoing(context)

    def model_dump_json(
        self, *, context: Mapping[str, Any] | None = None, indent: int | None = None
    ) -> str:
        """The same as JSON."""
        separators = (",", ":") if indent is None else None
        body = self.model_dump(context=context)
        return json.dumps(body, ensure_ascii=False, separators=separators, indent=indent)

    def advising(self) -> Self:
        """The same with the commands of its advice as the face that shows it has them."""
        values = {name: getattr(self, name) for name in self.model_fields}
        worded = {name: _advising(value, name in _ADVICE) for name, value in values.items()}
        changed = {name: new for name, new in worded.items() if new is not values[name]}
        return self.model_copy(update=changed) if changed else self

    def outgoing(self, _: Mapping[str, Any] | None) -> Fields:
        """What others see of it."""
        return self.shown_fields()

    def shown_fields(self) -> Fields:
        """Its fields by their names in JSON, as JSON values with clean text."""
        fields = Fields()
        fields.sampled = self.sampled
        for name, declared in self.model_fields.items():
            value = getattr(self, name)
            if value is not None or name in self.keep_null:
                shown = _shown(value, is_document=name in self.documents)
                fields[declared.alias or name] = shown
        return fields

    @classmethod
    def _float_fields(cls) -> frozenset[str]:
        """Which fields have floats, found for the first answer of the class."""
        if "_floats" not in vars(cls):
            fields = cls.model_fields.items()
            cls._floats = frozenset(
                name for name, field in fields if takes_floats(field.annotation)
            )
        return cls._floats


class WholeAnswer(Answer):
    """The answer of a tool or a command, which is not larger than its cap.

    Serialized with the context `ON_COMMAND_LINE`, only a cap that applies `always` counts.
    """

    cap: ClassVar[Cap] = Cap()

    shortened: dict[str, int] | None = field(
        default=None, description="by field, how many entries were left out to fit"
    )

    def outgoing(self, context: Mapping[str, Any] | None) -> Fields:
        """What others see of it, within its cap."""
        fields = self.shown_fields()
        cap = self.size_cap()
        if context is ON_COMMAND_LINE and not cap.always:
            return fields
        fitted, lost = fit(fields, cap)
        if lost:
            self.say_shortened(fitted, lost)
        return fitted

    def size_cap(self) -> Cap:
        """The cap of this answer, which may depend on what was asked for."""
        return self.cap

    def say_shortened(self, fields: Fields, lost: dict[str, int]) -> None:
        """Say in an answer that was cut to its cap which fields lost how many entries."""
        fields["shortened"] = lost


def _advising(value: object, is_advice: bool) -> object:
    """The value with its advice for the face; the very same where nothing changes."""
    if isinstance(value, Answer):
        return value.advising()
    if isinstance(value, str):
        return for_face(value) if is_advice else value
    if isinstance(value, Mapping):
        pairs = {key: _advising(item, False) for key, item in value.items()}
        return pairs if any(pairs[key] is not item for key, item in value.items()) else value
    if isinstance(value, list):
        items = [_advising(item, is_advice) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def _shown(value: object, *, is_document: bool) -> object:
    if isinstance(value, Answer):
        return value.shown_fields()
    if isinstance(value, str):
        longest = _LONGEST_DOCUMENT if is_document else _LONGEST_TEXT
        return cleaned(value, longest, multiline=is_document)
    if isinstance(value, Mapping):
        return {
            cleaned(str(key), _LONGEST_KEY): _shown(item, is_document=is_document)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        # The numbers of a series are rounded by what makes it, or are all of them, exactly.
        return [
            item
            if isinstance(item, float) and math.isfinite(item)
            else _shown(item, is_document=is_document)
            for item in value
        ]
    if isinstance(value, float):
        return rounded(value) if math.isfinite(value) else named(value)
    return value


class RecordedAnswer(WholeAnswer):
    """An answer from what is on record of runs."""

    incomplete: str | None = field(
        default=None, description="why records may be missing or out of date"
    )


class ItemFailure(Answer):
    """What went wrong for one run, host or instance, while the others were served."""

    subject: str
    code: str
    message: str
