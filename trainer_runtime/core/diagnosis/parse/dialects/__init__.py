"""Every dialect that is known, and what reads one line by them.

Adding one is a file with a `DIALECT`, its name here, and a log with its points in
`tests/golden/parse/`. Where two begin at the same place, the earlier one is asked first.
"""

from __future__ import annotations

from trainer_runtime.core.diagnosis.parse.dialects import (
    deepspeed,
    huggingface,
    json_lines,
    key_value,
    litgpt,
    megatron,
    modded_nanogpt,
    nanochat,
    nanogpt,
    progress_bars,
    torchtitan,
)
from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect

HEADED: tuple[Dialect, ...] = (
    nanogpt.DIALECT,
    modded_nanogpt.DIALECT,
    nanochat.DIALECT,
    litgpt.DIALECT,
    torchtitan.DIALECT,
    megatron.DIALECT,
    deepspeed.DIALECT,
    huggingface.DIALECT,
    json_lines.DIALECT,
    progress_bars.DIALECT,
)
# What no dialect begins in is read by this one.
FALLBACK: Dialect = key_value.DIALECT

__all__ = ["FALLBACK", "HEADED", "Dialect"]
