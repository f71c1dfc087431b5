"""Copies a checkpoint of another trainer into a run: `PYTHON -m … CONFIG`.

Runs in the run's folder before its trainer starts. The checkpoint is verified again; the copy is
sealed like every checkpoint, and its history goes into the attempt's events. Safe to be killed and
run again.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.files.manifest import Manifest, verify
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.attempt.config import ConfigError, RunConfig, read_run_config
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.checkpoints import random_state, restore
from trainer_runtime.train.checkpoints.checkpoint_store import checkpoint_name
from trainer_runtime.train.checkpoints.checkpointer import CHECKPOINTS
from trainer_runtime.train.checkpoints.folder import (
    WRITING_PREFIX,
    drop_from_page_cache,
    remove_folder,
    seal_folder,
    write_folder,
)
from trainer_runtime.train.foreign import huggingface, litgpt, nanogpt
from trainer_runtime.train.foreign.archives import read_archive
from trainer_runtime.train.foreign.inspect import kind_of
from trainer_runtime.train.foreign.records import Examined, Kind, UnusableError, examined, stamp_of

TAG = "adopted"
_FAILED = 1
_EVENTS = "events.jsonl"


@dataclass(frozen=True, slots=True)
class _Adoption:
    """A checkpoint of another trainer, and what it will be in a run."""

    config: RunConfig
    place: Path
    manifest: Manifest


def main(config_path: str) -> int:
    """Copy the checkpoint that the config's `adopt` names; returns the exit code."""
    path = Path(config_path)
    try:
        config = read_run_config(path)
        take_over(config, path.parent / _EVENTS)
    except (ConfigError, UnusableError) as error:
        print(f"the checkpoint can't be taken over: {error}", file=sys.stderr, flush=True)
        return ExitCode.UNUSABLE
    except OSError as error:
        print(f"the checkpoint can't be taken over: {error}", file=sys.stderr, flush=True)
        return _FAILED
    return 0


def take_over(config: RunConfig, events: Path) -> None:
    """Copies the checkpoint to the run's own, and its history into `events`.

    Raises:
        UnusableError: it changed since the run was created.
        OSError: it can't be read or written.
    """
    adopted = config.adopt
    if adopted is None:
        raise UnusableError("the configuration names no checkpoint to take over")
    step = adopted.step
    place = Path(adopted.folder, adopted.path)
    target = CHECKPOINTS / checkpoint_name(step)
    contents = examined(kind_of(config.framework), place)
    if contents.step != step or stamp_of(place) != adopted.stamp:
        raise UnusableError(
            f"{place} changed since it was inspected (it is of step {contents.step} now); adopt "
            "the folder again"
        )
    if verify(target):
        remove_folder(target)
        _say(f"taking over step {step} from {place}")
        manifest = Manifest(
            step,
            config.attempt.number,
            time.time(),
            dict(contents.metrics),
            (TAG,),
            config.sha256,
            (),
        )
        _put(config, place, target, manifest)
        drop_from_page_cache(target)
        if problems := verify(target):
            remove_folder(target)
            raise OSError(f"read back, the copy differs: {'; '.join(problems)}")
    if not events.exists():
        _write_events(events, contents, target)
    _say(f"step {step} is taken over; verified")


def _put(config: RunConfig, place: Path, target: Path, manifest: Manifest) -> None:
    CHECKPOINTS.mkdir(exist_ok=True)
    writing = CHECKPOINTS / f"{WRITING_PREFIX}{TAG}"
    shutil.rmtree(writing, ignore_errors=True)
    write = _WRITERS[kind_of(config.framework)]
    write(_Adoption(config, place, manifest), writing, target)


def _write_nanogpt(adoption: _Adoption, _: Path, target: Path) -> None:
    config, place, manifest = adoption.config, adoption.place, adoption.manifest
    weights, moments = nanogpt.renamed(place)
    state = {
        "step": manifest.step,
        "attempt": manifest.attempt,
        "config_sha256": config.sha256,
        "random": _seeded(config),
        "data_position": _position(config, manifest.step),
        "tokens": manifest.step * config.batch.tokens,
        "scaler": {},
        "metrics": dict(manifest.metrics),
    }
    tensors = {restore.MODEL: weights, restore.OPTIMIZER: moments}
    write_folder(target, tensors, {"state": state}, manifest, _nothing)


def _copy_trainers(adoption: _Adoption, writing: Path, target: Path) -> None:
    """Trainer's own folder as it is, but for what nobody reads; the copy itself is verified."""
    copy = writing / adoption.place.name
    ignored = shutil.ignore_patterns(*huggingface.NEVER_READ)
    shutil.copytree(adoption.place, copy, ignore=ignored)
    examined(huggingface.HUGGING_FACE, copy)
    seal_folder(copy, target, adoption.manifest, _nothing)
    shutil.rmtree(writing, ignore_errors=True)


def _write_litgpt(adoption: _Adoption, writing: Path, target: Path) -> None:
    """LitGPT's own file without the state of its loader, and beside it what our trainings add."""
    import torch

    config, place = adoption.config, adoption.place
    writing.mkdir()
    document = read_archive(place / litgpt.MODEL_FILE)
    kept = {key: document[key] for key in litgpt.KEPT}
    torch.save(kept, writing / litgpt.MODEL_FILE)
    for path in place.iterdir():
        if path.is_file() and path.name != litgpt.MODEL_FILE:
            shutil.copyfile(path, writing / path.name)
    position = _position(config, adoption.manifest.step)
    own = {"position": position, "random": _seeded(config), "scaler": {}}
    (writing / "rank-0.json").write_text(json.dumps(own))
    seal_folder(writing, target, adoption.manifest, _nothing)


# What writes the run's own form of a checkpoint, by way of a folder on the same disk.
_WRITERS: Mapping[Kind, Callable[[_Adoption, Path, Path], None]] = {
    nanogpt.NANOGPT: _write_nanogpt,
    litgpt.LITGPT: _write_litgpt,
    huggingface.HUGGING_FACE: _copy_trainers,
}


def _seeded(config: RunConfig) -> dict[str, Any]:
    """Random numbers as of a start with the run's seed: those of the original are not kept."""
    random_state.seed(config.seed)
    return {**random_state.capture(), "cuda": []}


def _position(config: RunConfig, step: int) -> list[int]:
    """How far our order of the data would have come by this step, by the sources' weights."""
    sequences = step * (config.batch.tokens // config.data.seq_len)
    weights = [source.weight for source in config.data.sources]
    drawn = [int(sequences * weight / sum(weights)) for weight in weights]
    drawn[0] += sequences - sum(drawn)
    return drawn


def _write_events(events: Path, contents: Examined, target: Path) -> None:
    """Writes the history and the checkpoint as events, atomically."""
    writing = events.with_name(f".{events.name}-{os.getpid()}")
    writing.unlink(missing_ok=True)
    log = EventLog(writing)
    for step, values in contents.history:
        log.emit("history", step=step, values=values)
    described = {
        "step": contents.step,
        "path": f"{target.parent.name}/{target.name}",
        "size_bytes": sum(path.stat().st_size for path in target.rglob("*") if path.is_file()),
        "tags": [TAG],
        "metrics": dict(contents.metrics),
    }
    log.emit("checkpoint", action="saved", **described)
    log.emit("checkpoint", action="verified", **described)
    for note in contents.notes:
        log.emit("decision", what="adopt", value=contents.step, reason=note)
    log.close()
    os.replace(writing, events)


def _say(line: str) -> None:
    print(line, flush=True)


def _nothing() -> None:
    """No event has to be durable before this checkpoint."""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
