"""A model of a run's own script, which somebody may have changed, that writes text."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from trainer_runtime.core.frameworks.launching import SCRIPT
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.checkpoints.restore import load_model
from trainer_runtime.train.loop.drawing import TextModel, windowed
from trainer_runtime.train.loop.sampling import SavedModel, trained_model


def load(saved: SavedModel) -> TextModel:
    """Raises: ConfigError: there is none, or the script has no model any more."""
    trained = trained_model(Path.cwd(), saved.request.start)
    script: Any = _script()
    model = script.GPT(trained.config.model, trained.config.data.seq_len).eval()
    load_model(model, trained.weights)
    next_logits = windowed(model.to(saved.device), model.seq_len, saved.device)
    return TextModel.of(next_logits, trained.tokenizer)


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trained_script", SCRIPT)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{SCRIPT} is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "GPT"):
        raise ConfigError(f"{SCRIPT} has no GPT any more")
    return module
