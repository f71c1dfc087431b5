"""The copies of a run's logs on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.followed_files import JOURNAL, SETUP_LOG, TRAIN_LOG
from trainmaster.errors.errors import UsageError
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

Stream = Literal["train", "setup", "supervisor"]
# The attempt of the file (0 where there is only one), and its generation: a new one begins when the
# file is truncated or replaced.
Piece = tuple[int, int]
FIRST_GENERATION = 1
_FILES = {"train": TRAIN_LOG, "setup": SETUP_LOG}


def newest_log(workspace: Workspace, view: RunView) -> Path:
    """The copy of the trainer's log of the newest attempt, from which it can be read again.

    Raises:
        UsageError: `LOG_NOT_READABLE`, nothing of it has been copied yet.
    """
    files = files_of(workspace, view, "train")
    kept = [files[piece] for piece in sorted(files) if files[piece].exists()]
    if not kept:
        raise UsageError(
            "LOG_NOT_READABLE",
            f"Nothing of the log of {view.run.run_id} is on this machine yet.",
            f"{command('status', view.run.run_id)} copies what its host has; then repeat this.",
        )
    return kept[-1]


def files_of(workspace: Workspace, view: RunView, stream: Stream) -> dict[Piece, Path]:
    """The real paths of the stream's pieces, oldest first: each generation of each attempt's
    file."""
    mirror = workspace.mirror.of(view.run.run_id, view.run.placement)
    if stream == "supervisor":
        names = {0: JOURNAL}
    else:
        names = {n: f"attempts/{n}/{_FILES[stream]}" for n in mirror.attempts()}
    return {
        (attempt, generation): Path(os.path.realpath(mirror.path(piece)))
        for attempt, name in names.items()
        for generation, piece in enumerate(mirror.generations(name), FIRST_GENERATION)
    }
