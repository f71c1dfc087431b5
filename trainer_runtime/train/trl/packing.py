"""Packed rows that don't see each other: attention stops, and positions restart, at each row.

TRL's own collator puts a batch into one long sequence, for FlashAttention, which computes row by
row. By any other attention that would cost the square of the whole batch: here each pack stays a
sequence of the batch, and transformers masks by its positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.attempt.objective import IGNORED
from trainer_runtime.train.hf.documents import keeps_texts_apart

BEST_FIT = "bfd"
_BY_ROWS = "flash_attention_2"


def keep_rows_apart(trainer: Any) -> None:
    """Has a trainer of packed rows read them apart; nothing where rows are not packed, or are cut
    into packs without gaps.

    Raises:
        ConfigError: the model's attention depends on the row before.
    """
    if not trainer.args.packing or trainer.args.packing_strategy != BEST_FIT:
        return
    config = trainer.model.config
    if config._attn_implementation == _BY_ROWS:
        return
    if not keeps_texts_apart(trainer.model, trainer.processing_class.eos_token_id or 0):
        raise ConfigError(
            f"method_args.packing: {config.model_type} in this transformers can't keep rows apart "
            "by their positions; set it to false"
        )
    trainer.data_collator = PackCollator(trainer.processing_class.pad_token_id)
    _count_tokens(trainer)


class PackCollator:
    """Batches of packs, or of single rows: each token's position is that in its row."""

    def __init__(self, pad_token: int) -> None:
        self._pad_token = pad_token

    def __call__(self, packs: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        size = len(packs), max(len(pack["input_ids"]) for pack in packs)
        inputs, labels = torch.full(size, self._pad_token), torch.full(size, IGNORED)
        # Beyond the last row, each place is one of its own, which no other attends to.
        positions, is_token = torch.zeros(size, dtype=torch.int64), torch.zeros(size).bool()
        for at, pack in enumerate(packs):
            filled = len(pack["input_ids"])
            inputs[at, :filled] = torch.tensor(pack["input_ids"])
            labels[at, :filled] = torch.tensor(pack.get("labels", pack["input_ids"]))
            lengths = pack.get("seq_lengths") or [filled]
            positions[at, :filled] = torch.cat([torch.arange(length) for length in lengths])
            is_token[at, :filled] = True
        # The last token of a row does not predict the first one of the next.
        labels[positions == 0] = IGNORED
        return {
            "input_ids": inputs,
            "labels": labels,
            "position_ids": positions,
            "attention_mask": is_token,
        }


def _count_tokens(trainer: Any) -> None:
    """Takes the padding's mask from what the model is given, since it would hide the positions
    from transformers, and counts tokens by it."""
    compute = trainer.compute_loss

    def compute_loss(model: Any, inputs: dict[str, Any], *rest: Any, **named: Any) -> Any:
        mask, before = inputs.pop("attention_mask"), trainer._total_train_tokens
        answer = compute(model, inputs, *rest, **named)
        if trainer.model.training:
            tokens = trainer.accelerator.gather_for_metrics(mask.sum()).sum()
            trainer._total_train_tokens = before + int(tokens)
            trainer._metrics["train"]["num_tokens"] = [trainer._total_train_tokens]
        return answer

    trainer.compute_loss = compute_loss
