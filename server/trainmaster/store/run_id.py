"""The identifier of a run: its name and six random characters."""

from __future__ import annotations

import re
import secrets

# Base 32 in lower case: safe in file names, shells and URLs without quoting.
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}-[a-z2-7]{6}")


def new_run_id(name: str) -> str:
    """`<name>-<6 base32 characters>`; thirty random bits distinguish runs of one name."""
    return f"{name}-{''.join(secrets.choice(_ALPHABET) for _ in range(6))}"
