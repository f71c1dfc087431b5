"""`fetch`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainer_runtime.core.protocol.figures import size_text
from trainmaster.cli.output import emit, is_for_a_person
from trainmaster.cli.parameters import AsJson, Run
from trainmaster.cli.run_service import ask
from trainmaster.home.user_paths import user_path


def fetch(
    run: Run,
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN",
            help="A glob over the run's folder, such as 'checkpoints/*', or best, latest, final.",
        ),
    ],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Where to. Of best, latest and final it becomes the model's folder, and may hold "
            "nothing else; else the paths below it are the run's own.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Download files of a run. Each is verified; repeat the command to resume an interrupted
    one."""
    from trainmaster.runs import fetch as service

    target = user_path(folder, "folder")
    show = _show if is_for_a_person(sys.stderr) and not as_json else None
    if show is not None:
        print("Listing the files ...", file=sys.stderr, flush=True)
    answer = ask(
        lambda workspace: service.fetch(workspace, run, pattern, target, on_progress=show),
        shows_progress=show is not None,
    )
    emit(answer, as_json)


def _show(done_bytes: int, total_bytes: int) -> None:
    share = 100 * done_bytes // max(1, total_bytes)
    end = "\n" if done_bytes >= total_bytes else ""
    progress = f"\r{size_text(done_bytes)} of {size_text(total_bytes)} ({share} %)"
    print(progress, end=end, file=sys.stderr, flush=True)
