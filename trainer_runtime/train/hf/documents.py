"""Keeps the texts of a sequence apart: attention stops, and positions restart, at each of them.

transformers derives the mask from positions that restart, for architectures whose attention it
masks itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import default_data_collator

from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.data.tokenizers import end_of_text
from trainer_runtime.train.loop.framework_run import FrameworkRun

_ROUNDING = 1e-4
Collator = Callable[[list[Any]], dict[str, Any]]


def collator_of(attempt: FrameworkRun, model: Any) -> Collator:
    """What makes batches of sequences; with `data.document_masks`, with the texts' positions.

    Raises:
        ConfigError: the model can't keep texts apart, or which token ends one is not known.
    """
    if not attempt.config.data.document_masks:
        return default_data_collator
    end = end_of_text(attempt.config.data)
    if end is None:
        raise ConfigError("data.document_masks needs a tokenizer with an end-of-text token")
    if not keeps_texts_apart(model, end):
        raise ConfigError(
            f"data.document_masks: {model.config.model_type} in this transformers can't keep texts "
            "apart by their positions; leave it out"
        )

    def collate(sequences: list[Any]) -> dict[str, Any]:
        batch = default_data_collator(sequences)
        # A cache of keys would make transformers forget the positions.
        return {
            **batch,
            "position_ids": positions_in_texts(batch["input_ids"], end),
            "use_cache": False,
        }

    return collate


def positions_in_texts(tokens: Tensor, end: int) -> Tensor:
    """The position of each token (B, T) in its own text, which begins with the token that ended
    the one before."""
    at = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    begins = torch.where(tokens == end, at, 0).cummax(dim=1).values
    return at - begins


@torch.no_grad()
def keeps_texts_apart(model: Any, end: int) -> bool:
    """Whether a text's logits are the same after any other text."""
    first, second = [token for token in range(3) if token != end][:2]
    was_training = model.training
    model.eval()
    logits = []
    for before in (first, second):
        tokens = torch.tensor([[before, before, end, first, second]], device=model.device)
        positions = positions_in_texts(tokens, end)
        try:
            outputs = model(input_ids=tokens, position_ids=positions, use_cache=False)
        except TypeError:  # an architecture without positions, such as Bloom
            break
        logits.append(outputs.logits[0, -1])
    model.train(was_training)
    if len(logits) < 2:
        return False
    # Experts that are given other numbers of tokens round in another way.
    difference = (logits[0] - logits[1]).abs().max()
    return bool(difference <= _ROUNDING * logits[0].abs().max())
