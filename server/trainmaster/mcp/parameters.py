"""The parameters that several tools share: the same words everywhere.

A word here is paid for by each tool; what needs more of them is in the instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError


def _as_list(value: Any) -> Any:
    """Models often send a lone string where a list is asked for; it can mean only one thing."""
    return [value] if isinstance(value, str) else value


def _as_text(value: Any) -> Any:
    """A spec is never an object, which has lost how its values were written."""
    if isinstance(value, str):
        return value
    raise PydanticCustomError("spec_type", "It is a path, or YAML text: a string, not an object")


Words = Annotated[Sequence[str], BeforeValidator(_as_list)]

RunId = Annotated[str, Field(description="Id, or unique name")]
RunOrLog = Annotated[str, Field(description="Run, or a log file's path")]
Spec = Annotated[str, BeforeValidator(_as_text), Field(description="Path, or YAML text")]
Host = Annotated[str, Field(description="Instead of the spec's")]
Sets = Annotated[Words, Field(description="Changes, as `optimizer.lr=0.0003`")]
Pattern = Annotated[
    str,
    Field(description="A line of the log, numbers named: `it {step} L={loss}`; or a regex"),
]
Cursor = Annotated[str, Field(description="Of an earlier answer")]
IdempotencyKey = Annotated[str, Field(description="The same again finds the first result")]
