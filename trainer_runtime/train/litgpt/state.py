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

from lightning.fabric.strategies import FSDPStrategy

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.train.checkpoints import random_state

MODEL_FILE = "lit_model.pth"
LORA_FILE = "lit_model.pth.lora"
# As Fabric, DDP, compiled models and recomputed blocks name what they wrap.
_WRAPPERS = ("_forward_module", "module", "_orig_mod", "_checkpoint_wrapped_module")


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
        groups = self.optimizer.param_groups
        present = [{key: group[key] for key in group if key != "params"} for group in groups]
        optimizer: Any = self.optimizer
        if not isinstance(self.fabric.strategy, FSDPStrategy):
            optimizer = _ByNameOrNumber(self.optimizer, self.model)
        kept = {"model": self.model, "optimizer": optimizer, **self._counters(0)}
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


class _ByNameOrNumber:
    """An optimizer of parameters that are whole, which takes the state of one that FSDP has saved,
    too: by the parameters' names instead of their numbers. FSDP itself takes both."""

    def __init__(self, optimizer: Any, model: Any) -> None:
        self._optimizer, self._model = optimizer, model

    def state_dict(self) -> dict[str, Any]:
        return dict(self._optimizer.state_dict())

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        named = saved["param_groups"][0]["params"]
        is_numbered = not named or isinstance(named[0], int)
        self._optimizer.load_state_dict(saved if is_numbered else self._numbered(saved))

    def _numbered(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        names = {parameter: _plain(name) for name, parameter in self._model.named_parameters()}
        groups = self._optimizer.param_groups
        ordered = [names[parameter] for group in groups for parameter in group["params"]]
        of = saved["state"]
        state = {number: of[name] for number, name in enumerate(ordered) if name in of}
        return {"state": state, "param_groups": self.state_dict()["param_groups"]}


def _plain(name: str) -> str:
    """A parameter's name without those of what the model was wrapped in."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


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
