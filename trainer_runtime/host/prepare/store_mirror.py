"""Checkpoints that are mirrored to an object store, by the training's interpreter.

The store's client is a package of the environment, so that whatever asks a store runs there.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.files.manifest import MANIFEST_NAME
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainer_runtime.host.environment.training_python import (
    InputUnavailableError,
    InputUnusableError,
    Report,
    TrainingPython,
)
from trainer_runtime.host.prepare.settled_python import ENVIRONMENT, settled_python

_MODULE, _PACKAGE = "store_mirror", "checkpoints"
_ANSWER, _LOCK = ".mirrored.json", ".mirror.lock"


def settle_mirror(config: RunConfig, run: Path, report: Report, python: TrainingPython) -> None:
    """Try that the mirror can be written, and bring the checkpoint to resume from where the disk
    has none of those to choose from: the run comes from another host. May be repeated.

    Raises:
        InputUnusableError: the store refuses, or has none of the checkpoints.
        InputUnavailableError: it can't be reached just now.
    """
    address = StoreAddress.find(config.checkpoint.mirror or "")
    if address is None:
        return
    steps = config.attempt.resume.candidates or ()
    folder = run / "checkpoints"
    is_here = any((folder / f"step-{step:08d}" / MANIFEST_NAME).exists() for step in steps)
    report(f"mirror: trying {address}")
    request = _request(address, run, steps=[] if is_here else [str(step) for step in steps])
    python.run(_MODULE, request, report, package=_PACKAGE)


def mirror_to_store(run: Path, place: str, names: Sequence[str]) -> int:
    """Bring a store to hold the checkpoints `names` of a run, and no others; prints
    `{"step": NEWEST}`, or why it failed. The exit code."""
    answer, address = run / _ANSWER, StoreAddress.find(place)
    try:
        if address is None:
            raise InputUnusableError(f"{place} is not an address of an object store")
        request = _request(address, run, names=list(names), answer=str(answer))
        with (run / _LOCK).open("ab") as lock:  # a supervisor that was killed leaves its own
            fcntl.flock(lock, fcntl.LOCK_EX)
            answer.unlink(missing_ok=True)
            _newest_python(run).run(_MODULE, request, lambda _: None, package=_PACKAGE)
        step = decode_fields(answer.read_bytes(), _ANSWER).find_integer("step")
    except (InputUnusableError, InputUnavailableError, OSError, ValueError) as error:
        print(f"mirror: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"step": step}))
    return 0


def _newest_python(run: Path) -> TrainingPython:
    """That of the newest attempt, without its mark: what it leaves behind is ended with it."""
    attempts = (path.parent for path in run.glob(f"attempts/*/{ENVIRONMENT}"))
    numbers = [int(folder.name) for folder in attempts if folder.name.isdigit()]
    if not numbers:
        raise InputUnavailableError("no attempt has an environment yet")
    path = run / "attempts" / str(max(numbers)) / "config.json"
    config = RunConfig.parse(path.read_bytes(), str(path))
    return settled_python(config, path.relative_to(run), run, {})


def _request(address: StoreAddress, run: Path, **more: object) -> dict[str, object]:
    run = Path(os.path.realpath(run))
    return {
        "mirror": str(address.below(run.name)),
        "checkpoints": str(run / "checkpoints"),
        **more,
    }
