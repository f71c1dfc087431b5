"""Which PyTorch may open pickles of others."""

from __future__ import annotations

import re

from trainer_runtime.core.environment.requirements import release_of

# Before 2.6, `weights_only=True` let a crafted file run code (CVE-2025-32434).
SAFE_TORCH = (2, 6)
_EARLY = re.compile(r"\d+(?:\.\d+)*\.?(?:a|b|rc|dev)\d*")


def opens_pickles_safely(torch_version: str) -> bool:
    """Whether this PyTorch runs no code of a pickle that is read with `weights_only=True`.

    Builds before a release, such as 2.6.0a0, count as the one before it.
    """
    release = release_of(torch_version)[:2]
    return release > SAFE_TORCH or (release == SAFE_TORCH and not _EARLY.match(torch_version))


def why_unsafe(torch_version: str) -> str | None:
    """The reason and the remedy; None where pickles can be opened."""
    if opens_pickles_safely(torch_version):
        return None
    return (
        f"PyTorch {torch_version} could run code that hides in a checkpoint (CVE-2025-32434); "
        "2.6 and later can't"
    )
