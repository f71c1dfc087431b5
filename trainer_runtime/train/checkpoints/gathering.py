"""What ranks write of a checkpoint: whether they could, and how it comes to rank 0's machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainer_runtime.core.files.parts import Awaited, Part, forget_parts, hand_over
from trainer_runtime.core.frameworks import framework_of
from trainer_runtime.train.attempt.config import RunConfig
from trainer_runtime.train.checkpoints.checkpointer import CHECKPOINTS
from trainer_runtime.train.distributed.ranks import Ranks

# The strategies under which rank 0 writes all that is large, and no rank waits for another one.
_WRITTEN_ALONE = ("single", "ddp")
_FAILED_WRITE = ("inline_container", "PytorchStreamWriter", "I/O error")


def is_written_alone(config: RunConfig) -> bool:
    """Whether the ranks write their parts of a checkpoint independently."""
    return config.compute.strategy in _WRITTEN_ALONE


def failure_of(write: Callable[[], object]) -> str | None:
    """Write; why the disk refused it, as Python, PyTorch or safetensors report it."""
    try:
        write()
    except Exception as error:  # frameworks raise it in their own ways
        if isinstance(error, OSError) or any(words in str(error) for words in _FAILED_WRITE):
            return str(error).partition("\n")[0]
        raise
    return None


class Gathering:
    """Used by all ranks of an attempt alike."""

    def __init__(self, ranks: Ranks, config: RunConfig) -> None:
        self._ranks = ranks
        self._attempt = config.attempt.number
        is_gathered = framework_of(config.framework).gathers_whole_state
        self._is_sharded = not is_gathered and not is_written_alone(config)
        self._apart: list[int] | None = None
        if ranks.is_main and ranks.machines > 1:
            forget_parts(CHECKPOINTS)

    def bring(self, written: Path, step: int) -> Awaited | None:
        """Bring what other machines' ranks have written below their `written` to rank 0's.

        Every rank has to call it once all have finished writing. Small files are there when it
        returns. Of a sharded checkpoint rank 0 is given what it has to wait for; the members send
        it while the training continues.
        """
        ranks = self._ranks
        if ranks.machines == 1:
            return None
        apart = self._machines_apart()
        ranks.await_files(written, apart)
        if not self._is_sharded:
            ranks.gather_files(written, apart)
            return None
        if ranks.is_main and apart:
            return Awaited(CHECKPOINTS, self._attempt, step, tuple(apart))
        if ranks.leads is not None and ranks.leads in apart:
            hand_over(CHECKPOINTS, Part(self._attempt, step, ranks.leads), written)
        return None

    @property
    def sharing(self) -> int:
        """How many machines have the disk of this one for checkpoints; every rank has to ask."""
        if self._ranks.machines == 1:
            return 1
        apart = self._machines_apart()
        return 1 if self._ranks.machine in apart else self._ranks.machines - len(apart)

    def _machines_apart(self) -> list[int]:
        if self._apart is None:
            self._apart = self._ranks.machines_apart(CHECKPOINTS)
        return self._apart
