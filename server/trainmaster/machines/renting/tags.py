"""The names of rented boxes at their providers: `tm-<home>-<six characters>`, each used once."""

from __future__ import annotations

import re
import secrets

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_TAG = re.compile(r"tm-([0-9a-f]{6})-[a-z2-7]{6}")


def new_tag(home_id: str) -> str:
    return f"tm-{home_id}-{''.join(secrets.choice(_LETTERS) for _ in range(6))}"


def home_of(tag: str) -> str | None:
    """The home whose tag it is; None for what is none of ours."""
    found = _TAG.fullmatch(tag)
    return found.group(1) if found else None
