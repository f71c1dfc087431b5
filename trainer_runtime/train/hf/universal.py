"""What Trainer resumes from where DeepSpeed's checkpoint was saved by another number of ranks.

Its parts fit that number alone. DeepSpeed converts them to a layout that any number of ranks can
load, in a folder of its own beside the checkpoint, which itself is only read.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import shutil
from pathlib import Path
from typing import Any

from trainer_runtime.core.frameworks import deepspeed
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.checkpoints.gathering import failure_of
from trainer_runtime.train.hf.checkpoint import (
    PARTS,
    load_all_weights,
    optimizer_parts,
    parts_folder,
)
from trainer_runtime.train.loop.framework_run import FrameworkRun

_NAME = "universal"
_GIB = 2**30


def resumed_from(trainer: Any, attempt: FrameworkRun, checkpoint: Path | None) -> str | None:
    """The folder that `trainer.train` resumes from; every rank has to call it.

    Raises:
        ConfigError: the checkpoint can't be converted, or the disk has no room for that.
    """
    if checkpoint is None:
        return None
    load_all_weights(trainer, checkpoint)
    if len(optimizer_parts(checkpoint)) in (0, attempt.world_size):
        return str(checkpoint)
    folder, copies = _folder(attempt), attempt.checkpoints.gathering.sharing
    attempt.ranks.on_each_machine(_NAME, lambda: _convert(checkpoint, folder, copies))
    plugin = trainer.accelerator.state.deepspeed_plugin
    plugin.deepspeed_config["checkpoint"] = {"load_universal": True}
    return str(folder)


def forget_converted(attempt: FrameworkRun, optimizer: Any) -> None:
    """Removes what was converted once all ranks have loaded it; every rank has to call it."""
    folder = _folder(attempt)
    if not folder.exists():
        return
    if deepspeed.stage(attempt.config) == 3:
        _part_groups(optimizer)
    attempt.on_any_rank(False)  # none of them loads any more
    if attempt.ranks.leads is not None:
        for parts in folder.glob(PARTS):
            shutil.rmtree(parts, ignore_errors=True)


def _part_groups(optimizer: Any) -> None:
    """ZeRO-3 has given all groups of parameters one count of steps, to which each would add."""
    for state in optimizer.state.values():
        state["step"] = copy.deepcopy(state["step"])


def _folder(attempt: FrameworkRun) -> Path:
    """One for each machine: several may share the disk."""
    return attempt.writing_folder / f"{_NAME}-{attempt.ranks.machine}"


def _convert(checkpoint: Path, folder: Path, copies: int) -> None:
    """`copies`: how many machines convert it on this disk. Raises: ConfigError: see
    `resumed_from`."""
    parts = parts_folder(checkpoint)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _refuse_without_room(parts, folder, copies)
    for file in checkpoint.iterdir():
        if file != parts:
            (folder / file.name).symlink_to(file.resolve())
    print(f"{checkpoint.name}: DeepSpeed converts it for another number of ranks", flush=True)
    reason = failure_of(lambda: _convert_parts(parts, folder / parts.name))
    if reason is not None:
        raise ConfigError(f"{checkpoint.name} can't be converted to other ranks: {reason}")


def _convert_parts(parts: Path, converted: Path) -> None:
    """As `python -m deepspeed.checkpoint.ds_to_universal` does, in this process: one that has
    threads of PyTorch and a GPU must not fork."""
    from deepspeed.checkpoint import ds_to_universal

    arguments = argparse.Namespace(
        input_folder=str(parts),
        output_folder=str(converted),
        num_extract_workers=1,
        num_merge_workers=1,
        keep_temp_folder=False,
        strict=True,
        inject_missing_state=True,  # ZeRO-1 and 2 save without it
    )
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        ds_to_universal.main(arguments)


def _refuse_without_room(parts: Path, folder: Path, copies: int) -> None:
    """DeepSpeed writes fragments, and then the whole of each parameter, before it removes those."""
    name = parts.parent.name
    states = sum(file.stat().st_size for file in optimizer_parts(parts.parent))
    needed = copies * (sum(file.stat().st_size for file in parts.iterdir()) + states)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(
            f"{name} was saved by another number of ranks, and to convert it takes "
            f"{needed / _GIB:.1f} GiB on the disk of {folder.parent.parent.name}/, where "
            f"{free / _GIB:.1f} GiB are free; free some, or resume with as many ranks as before"
        )
