"""The base of all answers, and the types that several of them share.

A tool's structured content and a command's `--json` are the same text. None is omitted, except
where null has a meaning (`resume_from`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, model_serializer, model_validator

from trainmaster.words.tool_names import tools_in

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


class Answer(BaseModel):
    """Omits fields that are None, except those in `keep_null`."""

    model_config = ConfigDict(extra="forbid")
    keep_null: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="after")
    def _name_tools(self) -> Self:
        """`next_step` names commands; `next_tools` names the tools that do the same."""
        step = getattr(self, "next_step", None)
        if step and "next_tools" in type(self).model_fields:
            self.next_tools = tools_in(step) or None
        return self

    @model_serializer(mode="wrap")
    def _lean(self, serialize: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        kept = self.keep_null
        return {
            key: value for key, value in serialize(self).items() if value is not None or key in kept
        }
