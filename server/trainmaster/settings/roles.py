"""What the holder of an access token may do over HTTP: each role includes the ones before it."""

from __future__ import annotations

from typing import Literal, get_args

Role = Literal["read", "operate", "spend"]
# From the least to the most.
ROLES: tuple[Role, ...] = get_args(Role)


def includes(role: Role, other: Role) -> bool:
    """Whether `role` may do what `other` may."""
    return ROLES.index(role) >= ROLES.index(other)
