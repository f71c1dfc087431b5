"""Texts that a model writes while it is trained: when they are due, and their events."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from torch import nn

from trainer_runtime.core.answers.sampled import EVENT, PARTS
from trainer_runtime.core.config import SamplesConfig
from trainer_runtime.core.protocol.text import LONGEST_TEXT, cleaned
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.loop.drawing import Drawing, TextModel, draw

# The longest that a training waits for its texts.
_WITHIN_S = 120.0
_FAILED = (ConfigError, LookupError, RuntimeError, TypeError, ValueError)


def sample_if_due(
    config: RunConfig,
    step: int,
    model: nn.Module,
    text_model: Callable[[SamplesConfig], TextModel],
    emit: Callable[..., Any],
) -> bool:
    """Generates a text for each prompt of `eval.samples`, where they are due after this step;
    whether they were. The seeds are the same at every step, so that texts compare.

    A text that can't be generated is recorded as `failed`, and ends no training.
    """
    samples = config.evaluation.samples
    if samples is None or not samples.is_due(step, config.steps):
        return False
    until_s = time.monotonic() + _WITHIN_S
    how = Drawing(samples.max_tokens, samples.temperature, config.seed, until_s)
    model.eval()  # without dropout
    prompt = samples.prompts[0]
    try:
        made = text_model(samples)
        for prompt in samples.prompts:
            sample = draw(made, prompt, how)
            text = cleaned(sample.text, LONGEST_TEXT, multiline=True)
            emit(
                EVENT, step=step, prompt=prompt, text=text, tokens=sample.tokens, ended=sample.ended
            )
    except _FAILED as error:
        reason = cleaned(str(error), 300)
        emit(EVENT, step=step, prompt=prompt, text="", tokens=0, ended="failed", reason=reason)
        print(f"warning: step {step}: no texts of eval.samples", file=sys.stderr, flush=True)
    finally:
        model.train()
    return True


def refuse_parts(config: RunConfig) -> None:
    """Raises: ConfigError: no rank has the whole model."""
    strategy = config.compute.strategy
    if strategy in PARTS and config.compute.processes > 1:
        raise ConfigError(f"under compute.strategy {strategy} no rank has the whole model")
