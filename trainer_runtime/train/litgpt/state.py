"""The state of a training of LitGPT's, in its own files, and beside them what it leaves out.

LitGPT keeps the model, the optimizer and two counters. A `rank-<r>.json` of ours adds the state of
each rank's random numbers, the position in the data, the last held-out loss, and in fp16 the scale
of losses.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.train.attempt.optimizer_state import settings_of
from trainer_runtime.train.checkpoints import random_state

MODEL_FILE = "lit_model.pth"
LORA_FILE = "lit_model.pth.lora"


@dataclass(slots=True)
class Trained:
    """What is trained. `state` is LitGPT's own, with its counters; it is changed in place.

    `describe` puts beside the weights what LitGPT wants to find there: configuration, tokenizer.
    """

    fabric: Any
    model: Any
    optimizer: Any
    state: dict[str, Any]
    accumulation: int
    is_lora: bool
    describe: Callable[[Path], None]

    def save(self, folder: Path, step: int, common: Mapping[str, Any]) -> None:
        """Writes everything; to be called by every rank, and done when all have finished.

        `common` is what every rank knows alike, as JSON.
        """
        if self.fabric.local_rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
        self.fabric.barrier()
        kept = {"model": self.model, "optimizer": self.optimizer, **self._counters(step)}
        with temporary_files_in(folder):
            self.fabric.save(folder / self._file, kept, filter=self._filter)
        own = {
            **common,
            "random": random_state.capture(),
            "scaler": self.fabric.strategy.precision.state_dict(),
        }
        _rank_file(folder, self.fabric.global_rank).write_text(json.dumps(own))
        if self.fabric.global_rank == 0:
            self.describe(folder)
        self.fabric.barrier()

    def load(self, folder: Path) -> None:
        """Takes a verified checkpoint's model, optimizer and counters.

        Rates, decay and betas stay those of the present configuration.
        """
        present = settings_of(self.optimizer)
        kept = {"model": self.model, "optimizer": self.optimizer, **self._counters(0)}
        self.fabric.load(folder / self._file, kept, strict=not self.is_lora)
        for group, values in zip(self.optimizer.param_groups, present, strict=True):
            group.update(values)
        # The same step by any split of it into micro-batches.
        self.state.update(self._counters(kept["step_count"]))
        self.fabric.strategy.precision.load_state_dict(self.read_common(folder)["scaler"])

    def restore_random_state(self, folder: Path, seed_of_rank: Callable[[int], int]) -> None:
        """Puts this rank's random numbers back; `seed_of_rank`: this rank's seed, by how many ranks
        the checkpoint was saved, where these were not as many."""
        saved_ranks = sum(1 for _ in folder.glob("rank-*.json"))
        if saved_ranks != self.fabric.world_size:
            random_state.seed(seed_of_rank(saved_ranks))
            return
        path = _rank_file(folder, self.fabric.global_rank)
        own: Mapping[str, Any] = decode_fields(path.read_bytes(), path.name).values
        random_state.restore(own["random"])

    @staticmethod
    def read_common(folder: Path) -> Mapping[str, Any]:
        """What every rank knows alike of a verified checkpoint, the scale of losses with it."""
        path = _rank_file(folder, 0)
        return decode_fields(path.read_bytes(), path.name).values

    def _counters(self, step: int) -> dict[str, int]:
        return {"iter_num": step * self.accumulation, "step_count": step}

    @property
    def _file(self) -> str:
        return LORA_FILE if self.is_lora else MODEL_FILE

    @property
    def _filter(self) -> dict[str, Callable[[str, Any], bool]] | None:
        """Of a model with adapters only those: the rest is the model that it started from."""
        if not self.is_lora:
            return None
        from litgpt.lora import lora_filter

        return {"model": lora_filter}


@contextlib.contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """Lightning writes a temporary file first, which elsewhere may find no room and is copied."""
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _rank_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.json"
