"""What the groups of the settings have in common."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from trainmaster.settings.secret_names import name_problem


def setting(default: Any, text: str, takes: str) -> Any:
    """A setting; `text` says what it does and why its default is what it is."""
    return Field(default, description=text, json_schema_extra={"takes": takes})


def secret_name(name: str) -> str:
    """Raises: ValueError: it can't name a secret."""
    if name_problem(name) is not None:
        raise ValueError(name_problem(name))
    return name


def address(url: str) -> str:
    """Raises: ValueError: it is not an http or https URL."""
    parts = urlsplit(url)  # a ValueError is a refusal too
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise ValueError("is not an http or https URL")
    return url


class Group(BaseModel):
    """A mapping of the settings: unknown keys are refused and nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
