"""Provides a training's inputs: a model's folder, a tokenizer's, a data set of the hub.

The config names each under `inputs`: a `folder` of the cache is where it comes to lie, sent by the
client (`from`), fetched from the hub (`hub`, at a `revision`) or an object `store`, or converted
from an encoding of tiktoken. A folder is there once `.complete` stands in it; an incomplete copy is
kept beside it and resumed.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer_runtime.core.config import InputConfig, RunConfig
from trainer_runtime.core.files.durable import sync_folder
from trainer_runtime.host.environment.training_python import Report, TrainingPython
from trainer_runtime.host.prepare.uploads import MARKER, await_folder


def settle_inputs(config: RunConfig, report: Report, python: TrainingPython) -> None:
    """Wait for what is sent, and fetch what lies on the hub or in a store; may be repeated.

    Raises:
        NothingComesError: the client can't send it.
        InputUnusableError: hub or store won't give it, or the host has no such encoding.
        InputUnavailableError: they can't be reached just now.
        OSError: the cache can't be written.
    """
    for item in config.inputs:
        folder = Path(item.folder)
        if item.source:
            label = f"data: waiting for the upload of the {item.what}"
            await_folder(config, folder, label, report, total_bytes=item.size_bytes)
        elif not (folder / MARKER).exists():
            _fetch(item, folder, report, python)


def _fetch(item: InputConfig, folder: Path, report: Report, python: TrainingPython) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    fetching = folder.with_name(f".building-{folder.name}")
    with _locked(folder.with_name(f"{folder.name}.lock"), item, report):
        if (folder / MARKER).exists():
            return
        act, module = f"fetching the {item.what} {item.hub} at {item.revision}", "fetch_from_hub"
        if item.store is not None:
            act, module = f"fetching the {item.what} {item.store}", "fetch_from_store"
        elif item.tiktoken is not None:
            act, module = f"converting tiktoken's {item.tiktoken}", "convert_tiktoken"
        report(f"data: {act}")
        python.run(module, {**item.to_dict(), "folder": str(fetching)}, report)
        shutil.rmtree(fetching / ".cache", ignore_errors=True)  # the hub client's own notes
        (fetching / MARKER).touch()
        sync_folder(fetching)
        shutil.rmtree(folder, ignore_errors=True)
        fetching.rename(folder)
        sync_folder(folder.parent)


@contextmanager
def _locked(file: Path, item: InputConfig, report: Report) -> Iterator[None]:
    with file.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"data: waiting for another run that fetches the {item.what}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
