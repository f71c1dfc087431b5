"""Refuses to open pickles of others with a PyTorch in which they could run code."""

from __future__ import annotations

import torch

from trainer_runtime.core.environment.pickle_safety import why_unsafe


class UnsafeTorchError(Exception):
    """The PyTorch of this interpreter may not open a pickle of others."""


def refuse_unsafe_torch(version: str | None = None) -> None:
    """Called before any such file is opened; `version`: None for that of this interpreter.

    Raises:
        UnsafeTorchError: it is older than 2.6.
    """
    reason = why_unsafe(str(torch.__version__) if version is None else version)
    if reason is not None:
        raise UnsafeTorchError(reason)
