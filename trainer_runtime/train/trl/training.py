"""Runs a trainer of TRL over its rows: in our order, from a checkpoint, to the exported model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.data.row_order import (
    rows_of_phase,
    training_order,
    validation_rows,
)
from trainer_runtime.train.data.rows import rows_by_source
from trainer_runtime.train.hf.checkpoint import refuse_another_strategy
from trainer_runtime.train.hf.universal import resumed_from
from trainer_runtime.train.loop.framework_run import FrameworkRun
from trainer_runtime.train.trl.callback import TrlCallback
from trainer_runtime.train.trl.evaluation import weigh_by_tokens
from trainer_runtime.train.trl.packing import keep_rows_apart

_STATE = "trainer_state.json"


def train_on_rows(
    trainer: Trainer, attempt: FrameworkRun, *, repeats: int = 1, block: int = 1
) -> None:
    """Trains to the target step or until the attempt has to end; then ./final is the model.

    The rows are those that the trainer has prepared. `repeats` and `block` as in `training_order`.

    Raises:
        ConfigError: too few of the rows can be used, packed ones can't be kept apart, or the
            checkpoint is another strategy's.
    """
    _put_in_order(trainer, attempt, repeats, block)
    if attempt.config.adapter is not None and attempt.config.precision == "fp16":
        hold_in_fp32(trainer)  # TRL casts adapters of a base in 4 bits to bf16
    checkpoint = attempt.choose_checkpoint()
    refuse_another_strategy(checkpoint, attempt.config)
    if checkpoint is not None:
        _resume_token_count(trainer, checkpoint)
    trainer.train(resume_from_checkpoint=resumed_from(trainer, attempt, checkpoint))
    if attempt.is_at_target:
        if trainer.is_fsdp_enabled:  # whose checkpoints are in parts
            trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
        final = attempt.writing_folder / "final"
        trainer.save_model(str(final))
        attempt.completed(final)


def hold_in_fp32(trainer: Trainer) -> None:
    """Cast the weights that are trained to fp32, in place: gradients in half precision can't be
    divided by fp16's loss scale."""
    model: Any = trainer.model
    for weight in model.parameters():
        if weight.requires_grad and weight.dtype in (torch.bfloat16, torch.float16):
            weight.data = weight.data.float()


def _put_in_order(trainer: Trainer, attempt: FrameworkRun, repeats: int, block: int) -> None:
    config = attempt.config
    rows: Any = trainer.train_dataset
    counts = _of_sources(config, rows)
    order = training_order(config, len(rows), repeats=repeats, block=block, of_sources=counts)
    if attempt.is_main:
        print(f"{len(rows):,} rows to train on; the run reads {len(order):,}", flush=True)
    trainer.train_dataset = rows.select(order.numpy())
    of_phase = partial(rows_of_phase, attempt.curriculum, order, counts)
    callback = TrlCallback(attempt, len(order) / config.steps / len(rows), of_phase)
    trainer.add_callback(callback)
    callback.attend(trainer)
    if config.method == "sft":
        keep_rows_apart(trainer)
        weigh_by_tokens(trainer)
    at_most = config.evaluation.sequences
    by_source: Any = trainer.eval_dataset
    held_out = {source: _evenly(rows, at_most, source) for source, rows in by_source.items()}
    trainer.eval_dataset = held_out if len(held_out) > 1 else next(iter(held_out.values()))


def _of_sources(config: RunConfig, rows: Any) -> list[int]:
    """How many of the trainer's rows each source has, where phases mix them."""
    if not config.phases:
        return []
    counts = rows_by_source(config)
    if sum(counts) != len(rows):
        raise ConfigError(
            f"phases mix the rows of their sources, but the trainer has made {len(rows)} of "
            f"{sum(counts)}: set method_args.packing to false"
        )
    return counts


def _evenly(rows: Any, at_most: int, source: str) -> Any:
    if not len(rows):
        raise ConfigError(
            f"data source {source}: no held-out row fits data.seq_len; use a longer one"
        )
    return rows.select(validation_rows(len(rows), at_most))


def _resume_token_count(trainer: Any, checkpoint: Path) -> None:
    """Adds the tokens of earlier attempts: TRL counts from 0 in every process."""
    data = (checkpoint / _STATE).read_bytes()
    history = decode_fields(data, _STATE, max_bytes=MAX_DOCUMENT_BYTES).sections("log_history")
    counts = [entry.values["num_tokens"] for entry in history if "num_tokens" in entry.values]
    if counts:
        trainer._total_train_tokens = counts[-1]
