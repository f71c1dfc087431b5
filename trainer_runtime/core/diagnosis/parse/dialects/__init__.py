"""All known log dialects.

A new one needs a module with a `DIALECT`, its name here, and a log with its points in
`tests/golden/parse/`. Where two match at the same position, the earlier one is tried first.
"""

from __future__ import annotations

from trainer_runtime.core.diagnosis.parse.dialects import (
    build_nanogpt,
    closing,
    composer,
    deepspeed,
    epoch_steps,
    huggingface,
    json_lines,
    keras,
    key_value,
    leading_step,
    litgpt,
    megatron,
    minimind,
    modded_nanogpt,
    nanochat,
    nanogpt,
    olmo,
    progress_bars,
    torchtitan,
    trainmaster,
    verl,
)
from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect

HEADED: tuple[Dialect, ...] = (
    nanogpt.DIALECT,
    trainmaster.DIALECT,
    modded_nanogpt.DIALECT,
    nanochat.DIALECT,
    litgpt.DIALECT,
    torchtitan.DIALECT,
    megatron.DIALECT,
    deepspeed.DIALECT,
    huggingface.DIALECT,
    json_lines.DIALECT,
    keras.DIALECT,
    progress_bars.DIALECT,
    epoch_steps.DIALECT,
    minimind.DIALECT,
    build_nanogpt.DIALECT,
    olmo.DIALECT,
    verl.DIALECT,
    composer.DIALECT,
    leading_step.DIALECT,
    closing.DIALECT,
    progress_bars.DESCRIBED,
)
# Reads lines in which no other dialect begins.
FALLBACK: Dialect = key_value.DIALECT

__all__ = ["FALLBACK", "HEADED", "Dialect"]
