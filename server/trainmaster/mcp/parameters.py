"""The parameters that several tools share: the same words everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field


def _as_list(value: Any) -> Any:
    """Models often send a lone string where a list is asked for; it can mean only one thing."""
    return [value] if isinstance(value, str) else value


Words = Annotated[Sequence[str], BeforeValidator(_as_list)]

RunId = Annotated[str, Field(description="Run id, or the run's name where it is unique")]
Spec = Annotated[str, Field(description="Path of a spec file, or the spec itself as YAML text")]
Host = Annotated[str, Field(description="Overrides the spec's host")]
Sets = Annotated[
    Words,
    Field(description="Changes to the spec as `dotted.field=value`, e.g. `optimizer.lr=0.0003`"),
]
Cursor = Annotated[str, Field(description="From an earlier answer: continue after it")]
IdempotencyKey = Annotated[
    str, Field(description="Any text of yours; the same key again finds the first call's run")
]
