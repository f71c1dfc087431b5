"""Tags, the names of rented instances at their providers: `tm-<home>-<six characters>`, unique."""

from __future__ import annotations

import re
import secrets

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_TAG = re.compile(r"tm-([0-9a-f]{6})-[a-z2-7]{6}")


def new_tag(home_id: str) -> str:
    return f"tm-{home_id}-{''.join(secrets.choice(_LETTERS) for _ in range(6))}"


def home_of(tag: str) -> str | None:
    """The id of the home that made a tag; None for a name that is not a tag."""
    match = _TAG.fullmatch(tag)
    return match.group(1) if match else None
