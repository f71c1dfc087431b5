"""The state of every random number generator that a training draws from, as JSON."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.train.checkpoints.tensors import tensor_bytes


def capture() -> dict[str, Any]:
    """Torch's CPU and CUDA generators and Python's own."""
    version, numbers, gauss = random.getstate()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "torch": _encode(torch.get_rng_state()),
        "cuda": [_encode(state) for state in cuda],
        "python": [version, list(numbers), gauss],
    }


def restore(state: Mapping[str, Any]) -> None:
    """Restores every generator to a state from `capture`."""
    torch.set_rng_state(_decode(state["torch"]))
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([_decode(text) for text in state["cuda"]])
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))


def seed(value: int) -> None:
    """Seeds every generator; what comes next is the same in every process that does so."""
    random.seed(value)
    torch.manual_seed(value)


def seed_of_rank(run_seed: int, step: int, rank: int) -> int:
    """The seed of a rank of which a checkpoint has no state, since it was saved by another number
    of ranks; below 2**32, as numpy wants it."""
    digest = hashlib.sha256(f"{run_seed}/random/{step}/{rank}".encode()).digest()
    return int.from_bytes(digest[:4], "little")


def _encode(state: Tensor) -> str:
    return base64.b64encode(tensor_bytes(state)).decode()


def _decode(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
