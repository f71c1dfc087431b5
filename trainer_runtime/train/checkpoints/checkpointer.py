"""Resumes and saves a training: its start, its checkpoints and its final model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.train.attempt import optimizer_state
from trainer_runtime.train.attempt.averaging import evaluated_weights, use_trained_weights
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.attempt.exit_codes import NotSavedError, ShardsError
from trainer_runtime.train.attempt.weight_average import AVERAGE, WeightAverage
from trainer_runtime.train.checkpoints import hf_export, random_state, restore
from trainer_runtime.train.checkpoints.checkpoint import Checkpoint, Checkpoints, TensorFiles
from trainer_runtime.train.checkpoints.checkpoint_store import (
    CheckpointStore,
    Origin,
    final_manifest,
    require_verified,
    saved_metrics,
)
from trainer_runtime.train.checkpoints.due import SavesDue
from trainer_runtime.train.checkpoints.folder import remove_leftovers, write_folder
from trainer_runtime.train.checkpoints.retention import Retention
from trainer_runtime.train.data import tokenizers
from trainer_runtime.train.data.batches import TrainingData

CHECKPOINTS = Path("checkpoints")
FINAL = Path("final")
# In ./final, the configuration that the model was trained by.
RUN_CONFIG = "run_config"


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training changes; `average` of its weights, if one is kept."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None = None


class Checkpointer:
    """Restores and saves the model, the optimizer, the data position and the random numbers."""

    def __init__(
        self,
        config: RunConfig,
        events: EventLog,
        trained: Trained,
        scaler: torch.amp.GradScaler,
        data: TrainingData,
    ) -> None:
        self._config = config
        self._curriculum = Curriculum.of(config)
        self._events = events
        self._model, self._optimizer = trained.model, trained.optimizer
        self._average = trained.average
        self._scaler = scaler
        self._data = data
        self._resumed_step = -1
        self.restored_metrics: Mapping[str, float] = {}

    def start(self) -> tuple[int, bool, list[restore.Skipped]]:
        """Restores the newest state that verifies; returns (step, resumed, skipped).

        Raises:
            ConfigError: the checkpoint asked for is damaged, or is of another model or data.
        """
        restored, skipped = restore.find(CHECKPOINTS, self._config.attempt.resume)
        step = 0
        if restored is not None:
            self._restore(restored)
            step = self._resumed_step = restored.step
            self.restored_metrics = saved_metrics(CHECKPOINTS, step)
        elif self._average is not None:
            self._average.begin(None)
        origin = Origin(self._config.attempt.number, self._config.sha256, step)
        store = CheckpointStore(CHECKPOINTS, origin, Retention.of(self._config), self._events)
        self._checkpoints = Checkpoints(store, self._events)
        resumed = restored is not None
        self._due = SavesDue(self._config, store, self._events, step, resumed=resumed)
        return step, resumed, skipped

    def first_step_done(self) -> None:
        """Allocates the buffers of a save, now that the optimizer has its state."""
        with evaluated_weights(self._optimizer):
            self._checkpoints.allocate(self._tensors())

    def is_due(self, step: int, step_time_s: float) -> bool:
        """True if a checkpoint belongs after this step; the last step's is `save_last`'s."""
        return self._due.is_due(step, step_time_s)

    def save(self, step: int, metrics: Mapping[str, float]) -> None:
        """Saves in the background; raises NonFiniteError as `Checkpoints.save` does."""
        state = {
            "step": step,
            "attempt": self._config.attempt.number,
            "config_sha256": self._config.sha256,
            "random": random_state.capture(),
            "data_position": self._data.position,
            "data_mix": self._data.mix,
            "tokens": self._curriculum.tokens_before(step),
            "scaler": self._scaler.state_dict(),
            "metrics": dict(metrics),
        }
        with evaluated_weights(self._optimizer):
            self._checkpoints.save(Checkpoint(step, self._tensors(), state, metrics))
        self._due.saved(step)

    def save_last(self, step: int, metrics: Mapping[str, float]) -> None:
        """Saves the last state unless it is already saved, and waits for its verification.

        Raises:
            NotSavedError: it could not be saved; events give the reason.
            NonFiniteError: it holds NaN or infinity.
        """
        if step == self._resumed_step:
            return
        if step != self._due.saved_step:
            self.save(step, metrics)
        self._checkpoints.wait()
        require_verified(step, self._checkpoints.last_verified)

    def export(self, step: int, metrics: Mapping[str, float]) -> None:
        """Writes the model to ./final: as transformers loads it, with its tokenizer, or under the
        names of a script whose model somebody has changed.

        Raises:
            NotSavedError: they can't be written.
        """
        remove_leftovers(FINAL.parent)
        manifest = final_manifest(self._config, step, metrics)
        try:
            with evaluated_weights(self._optimizer):
                weights, documents = self._final()
                write_folder(
                    FINAL,
                    {restore.MODEL: weights},
                    documents,
                    manifest,
                    self._events.sync,
                    others=tokenizers.files_of(self._config.data),
                )
        except OSError as error:
            raise NotSavedError(f"the final model can't be written: {error}") from error

    def _final(self) -> tuple[Mapping[str, Tensor], dict[str, Mapping[str, Any]]]:
        weights, model = restore.model_tensors(self._model), self._config.model
        is_exported = hf_export.can_be_exported(weights, model)
        documents = model_documents(self._config, is_exported=is_exported)
        if is_exported:
            return hf_export.exported(weights, model), documents
        kept = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        return kept, documents

    def close(self) -> None:
        """Waits for a save in flight."""
        if hasattr(self, "_checkpoints"):
            self._checkpoints.close()

    def _tensors(self) -> TensorFiles:
        averages = {} if self._average is None else {AVERAGE: self._average.tensors}
        return {
            restore.MODEL: restore.model_tensors(self._model),
            restore.OPTIMIZER: optimizer_state.state_tensors(self._optimizer, self._model),
            **averages,
        }

    def _restore(self, restored: restore.Restored) -> None:
        restore.load_model(self._model, restored.model)
        optimizer_state.load_state_tensors(self._optimizer, self._model, restored.optimizer)
        use_trained_weights(self._optimizer)
        if self._average is not None:
            self._average.begin(restored.average)
        state: Mapping[str, Any] = restored.state
        try:
            self._data.seek(state["data_position"], state.get("data_mix"))
        except ShardsError as error:
            raise ConfigError(f"the checkpoint of step {restored.step}: {error}") from None
        if state["scaler"] and self._scaler.is_enabled():
            self._scaler.load_state_dict(state["scaler"])
        random_state.restore(state["random"])


def model_documents(config: RunConfig, *, is_exported: bool) -> dict[str, Mapping[str, Any]]:
    """What a model's folder says of it; `is_exported`: its weights have transformers' names."""
    if not is_exported:
        return {"config": config.document}
    end = tokenizers.end_of_text(config.data)
    described = hf_export.config_of(config.model, config.data.seq_len, end)
    return {"config": described, RUN_CONFIG: config.document}
