"""The arguments that a framework's methods take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from trainmaster.plan.fields.annotations import Auto, Positive
from trainmaster.plan.fields.field_tree import accepted

_STRICT = ConfigDict(strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a method. `kind` is the type that it takes; None as `default` leaves it to
    the framework, or to planning where `text` says so; `...` has to be given."""

    kind: Any
    default: Any
    text: str

    @property
    def words(self) -> str:
        """What it takes, in words."""
        return accepted(self.kind)

    def accepts(self, value: Any) -> bool:
        """Whether it takes a value, without converting it."""
        try:
            TypeAdapter(self.kind, config=_STRICT).validate_python(value)
        except ValidationError:
            return False
        return True


EPOCHS = Argument(
    Positive | Auto,
    None,
    "Length as passes over the examples, in place of `steps`. auto: 3 below 1,000 examples, "
    "2 below 10,000, else 1; sft of a model of 50M parameters or more 2.",
)
