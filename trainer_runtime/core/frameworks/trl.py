"""A resolved configuration in the words of TRL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def files(config: Mapping[str, Any]) -> dict[str, str]:
    """The framework's own files beside config.json, by name."""
    return {}
