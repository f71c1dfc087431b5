"""nanogpt's script on a tiny corpus, whose attempts are trained in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.host.run_configs import Config, changed
from support.host.tiny_training import RunFolder, prepared_config
from support.plan.rendered import load_script, script_text
from support.train.litgpt_training import as_a_process_of_its_own

from trainer_runtime.train.attempt.exit_codes import ending
from trainer_runtime.train.loop.run import TrainingRun
from trainer_runtime.train.loop.signals import StopSignal


def config_on(folder: Path, file: str, style: str = "llama", **changes: Any) -> Config:
    """The configuration of a run on a test's own text and a script's, prepared under `folder`."""
    text = Path(file).read_bytes() + script_text("nanogpt", style=style).encode()
    return changed(prepared_config(folder, "nanogpt", text), changes)


def maker(folder: Path, base: Config) -> Callable[..., Any]:
    """Makes runs below `folder` by their names, each `base` with changes."""

    def make_run(name: str, kind: type[RunFolder] = RunFolder, **changes: Any) -> RunFolder:
        return kind(folder / name, changed(base, changes))

    return make_run


def train_here(run: RunFolder, config: str = "config.json") -> int:
    """The exit code of an attempt in a run's folder."""

    def whole() -> None:
        attempt = TrainingRun(Path(config), StopSignal())
        try:
            load_script(run.folder).train(attempt)
        finally:
            attempt.close()

    with as_a_process_of_its_own(run.folder):
        return ending(whole)
