"""Metric keys: one canonical name for what each framework calls differently."""

from __future__ import annotations

import re
from functools import lru_cache


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STEP_NAMES = _words(
    "step steps global_step iter iters iteration iterations it current_step train_step "
    "training_step optimizer_step update updates current_steps"
)
TOTAL_NAMES = _words("total_steps max_steps num_steps max_iters train_iters")
# Never metrics: remaining time, wall-clock times, seeds and sizes of a configuration.
IGNORED = _words(
    "eta remaining_time remaining v version v_num seed pid time_stamp timestamp ts _timestamp "
    "seq t time_ms lineno world_size local_rank rank exitcode port wall_time"
)
_CANONICAL = {
    "loss": "loss train_loss training_loss train/loss loss/train lm_loss lm-loss nll l total_loss "
    "main/loss rl_loss trl reduced_train_loss xent ce_loss cross_entropy_loss losses/total_loss "
    "step_loss batch_loss train-loss train-cross-entropy",
    "val_loss": "val_loss eval_loss validation_loss valid_loss test_loss eval/loss val/loss "
    "valid/loss validation/loss loss/val dev_loss lm_loss_validation tel v_loss evaluation_loss "
    "testing_loss validation/main/loss validation-loss validation-cross-entropy",
    "perplexity": "ppl perplexity train_ppl train_perplexity",
    "val_perplexity": "val_ppl val_perplexity eval_perplexity eval_ppl valid_ppl",
    "accuracy": "acc accuracy train_acc train_accuracy train/accuracy main/accuracy",
    "lr": "lr learning_rate learningrate train/learning_rate train/lr lr-adamw",
    "grad_norm": "grad_norm gradnorm gradient_norm norm gnorm train/grad_norm total_norm",
    "tokens": "tokens num_tokens tokens_seen num_input_tokens_seen total_tokens consumed_tokens",
    "tokens_per_s": "tokens_per_s tokens_per_sec tokens_per_second tok/s tok/sec tok_s tps "
    "tokens/s tokens/sec train_tokens_per_second tok_per_sec toks_per_s tokens_s",
    "samples_per_s": "samples_per_s samples_per_sec samples/sec samples/s samples_per_second "
    "train_samples_per_second currsamplespersec",
    "step_time_s": "step_time_s step_time dt elapsed_time_per_iteration step_avg iter_time_s "
    "time_per_step",
    "mfu": "mfu bf16_mfu train/mfu",
    "tflops": "tflops throughput_per_gpu tflop/s tflops_per_gpu",
    "epoch": "epoch train/epoch ep",
    "loss_scale": "loss_scale",
    "nan_count": "nan_count number_of_nan_iterations",
    "peak_memory_gib": "peak_memory_gib peak_mem max_memory max_mem peak_memory_usage "
    "peak_memory_consumption maxmemallocated",
}
CANONICAL = {name: key for key, names in _CANONICAL.items() for name in names.split()}
# Keys that only training lines have: one of these makes a generic line a training line.
MEASURED = frozenset(_CANONICAL) - {"lr", "epoch", "tokens"}
# Words that say how or over what a training's loss was taken, not which part of it.
_TAKEN = _words(
    "avg avr average mean running smoothed smooth ema cur curr current batch minibatch mini step "
    "iter train training total global local rank slice per lm gpt ce xent last epoch sum"
)
_PARTS_OF_NAME = re.compile(r"[^a-z]+")
_EVAL_SET_LOSS = re.compile(r"(?:eval|val|valid)_(\w+)_loss$")
_HELD_OUT = {name: f"val_{name}" for name in ("loss", "perplexity", "accuracy")}
_UNFIT = re.compile(r"[^A-Za-z0-9_./@-]+")
_LONGEST_KEY = 80


def key_of(name: str) -> str | None:
    """The metric key for a framework's `name`: the canonical one, else its own, sanitized.

    None if it is not a metric.
    """
    return _known_key(name) if len(name) <= _LONGEST_KEY else _key_of(name)


def held_out_key(key: str) -> str:
    """The key of what was measured on held-out data, for what a line of an evaluation calls so."""
    return _HELD_OUT.get(key, key)


def is_loss_by_another_name(key: str) -> bool:
    """Whether a metric is a training's loss, if nothing else is: `avg_loss`, not `value_loss`."""
    words = [word for word in _PARTS_OF_NAME.split(key.lower()) if word]
    return words.count("loss") == 1 and all(word == "loss" or word in _TAKEN for word in words)


def _key_of(name: str) -> str | None:
    own = _UNFIT.sub("_", name.strip()).strip("_./-@")
    if not own or len(own) > _LONGEST_KEY:
        return None
    lower = own.lower()
    if lower in IGNORED:
        return None
    if lower in CANONICAL:
        return CANONICAL[lower]
    if named := _EVAL_SET_LOSS.match(lower):
        return f"val_loss/{named[1]}"
    return own


_known_key = lru_cache(maxsize=4096)(_key_of)  # a log repeats its names
