"""What a model keeps for its backward pass."""

from __future__ import annotations

from typing import Any

import torch


def kept_bytes(model: torch.nn.Module, **inputs: Any) -> int:
    """Of one forward pass, without the weights."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(**inputs)
    return sum(storage.nbytes() for storage in kept.values())
