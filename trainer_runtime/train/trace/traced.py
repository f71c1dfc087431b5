"""Traces the training that a folder describes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.protocol.text import cleaned
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.trace.without_data import tensors_without_data

_LONGEST_REASON = 300


def traced(folder: Path) -> MemoryTrace:
    """The memory of its steps, by config.json and train.py.

    Raises:
        ConfigError: they can't be computed without data, for the reason that it names.
    """
    try:
        config = _config(folder / "config.json")
        framework = import_module(f"trainer_runtime.train.trace.{config.framework}")
        with tensors_without_data(config):
            answer: MemoryTrace = framework.trace(config, folder)
    except ConfigError:
        raise
    except Exception as error:  # PyTorch and the frameworks raise what they like
        reason = cleaned(str(error).strip().partition("\n")[0], _LONGEST_REASON)
        raise ConfigError(f"{type(error).__name__}: {reason}") from error
    return answer


def _config(path: Path) -> RunConfig:
    """The configuration, uncompiled: a compiler needs the device itself."""
    document = decode_fields(path.read_bytes(), path.name)
    compute = {**document.section("compute").values, "compile": False}
    return RunConfig.parse({**document.values, "compute": compute})
