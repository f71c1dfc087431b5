"""`trainmaster demo`: the main job on this machine, with its trainer killed half-way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import number_text, spoken_duration
from trainmaster.cli.progress_bar import describe, showing_progress
from trainmaster.cli.run_service import ask
from trainmaster.errors.advice import for_face
from trainmaster.errors.errors import StateError

if TYPE_CHECKING:
    from trainmaster.answers.runs import WaitAnswer
    from trainmaster.answers.status import StatusAnswer
    from trainmaster.sync.workspace import Workspace

Say = Callable[[str], None]

_LONGEST_S = 900.0
_PROGRESS_EVERY_S = 5.0
_PROMPT = "def "
_PACKAGES = ("asyncio", "collections", "email", "http", "importlib", "json", "logging", "unittest")
_SPEC = """\
name: stdlib-gpt
framework: nanogpt
model: {n_layer: 3, n_head: 4, d_model: 128}
data: {sources: [{path: ./corpus}], tokenizer: byte, seq_len: 64}
batch: {tokens: 1024}
optimizer: {lr: 0.004}
steps: STEPS
eval: {every_steps: EVERY, batches: 8}
checkpoint: {every: EVERY, keep_latest: 3}
labels: {experiment: demo}
"""


def demo_command(
    steps: Annotated[int, typer.Option(min=20, help="Optimizer steps to train.")] = 500,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Train a small GPT on the Python standard library's source, and kill it half-way."""
    summary = ask(lambda workspace: _Demo(workspace, steps, as_json).run(), shows_progress=True)
    if as_json:
        print(json.dumps(summary, separators=(",", ":")))


def _say_to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


class _Demo:
    def __init__(self, workspace: Workspace, steps: int, as_json: bool) -> None:
        self._workspace = workspace
        self._steps = steps
        self._as_json = as_json
        self._say: Say = _say_to_stderr if as_json else partial(print, flush=True)
        self._progress_due = 0.0

    async def run(self) -> dict[str, Any]:
        """The whole demonstration.

        Raises:
            StateError: `INTERNAL`, something of it did not come out as it must.
        """
        from trainmaster.runs.launch.launch import launch

        started = time.monotonic()
        spec = _write_spec(self._workspace.home.root / "demo", self._steps)
        self._say(f"The spec, {spec}:\n\n{_indented(spec.read_text())}")
        launched = await launch(self._workspace, str(spec))
        run = launched.run_id
        self._say(f"\nLaunched {run}, detached: it continues without this command.")
        # Beyond a checkpoint: some steps are computed again.
        await self._wait(run, f"step:{self._steps // 2 + _every(self._steps) // 2}")
        killed_at = await self._kill_trainer(run)
        ended = await self._wait(run, "completed")
        if ended.event != "completed":
            raise _failed(f"the run ended as {ended.state}: {ended.next_step}")
        resumed_at, repeated = await self._check_unbroken(run, killed_at)
        await self._show(run, killed_at)
        sample = await self._sample(run)
        self._say(f"\nSample after the prompt {_PROMPT!r}:\n\n{_indented(sample)}")
        await self._say_where(run, spec)
        seconds = round(time.monotonic() - started, 1)
        self._say(f"\nDone in {spoken_duration(seconds)}.")
        return {
            "run_id": run,
            "seconds": seconds,
            "killed_at_step": killed_at,
            "resumed_from_step": resumed_at,
            "steps_repeated_bit_for_bit": repeated,
            "sample": sample,
        }

    async def _wait(self, run: str, until: str) -> WaitAnswer:
        from trainmaster.runs.events.event_watch import TIMEOUT
        from trainmaster.runs.events.wait import wait_for_event
        from trainmaster.runs.upkeep.maintain import maintaining

        async with maintaining(self._workspace, run):
            with showing_progress(self._as_json) as listen:
                answer = await wait_for_event(
                    self._workspace,
                    run,
                    until=[until],
                    timeout_s=_LONGEST_S,
                    on_progress=listen or self._say_progress,
                )
        if answer.event == TIMEOUT:
            raise _failed(f"{until} did not come within {spoken_duration(_LONGEST_S)}")
        return answer

    async def _say_progress(self, status: StatusAnswer) -> None:
        """Progress lines, where no terminal can draw a bar."""
        if time.monotonic() >= self._progress_due:
            self._progress_due = time.monotonic() + _PROGRESS_EVERY_S
            self._say(describe(status))

    async def _kill_trainer(self, run: str) -> int:
        """SIGKILL to the trainer, no more and no less; the step that it had come to."""
        status = await self._status(run)
        path = Path(str(status.folder)) / "attempts" / str(status.attempt) / "process.json"
        pid = json.loads(path.read_bytes())["trainer"]["pid"]
        os.kill(pid, signal.SIGKILL)
        self._say(f"\nKilled the trainer (pid {pid}) with SIGKILL at step {status.step}.")
        return status.step

    async def _check_unbroken(self, run: str, killed_at: int) -> tuple[int, int]:
        """Where it resumed, and how many steps it took twice with exactly the same loss."""
        from trainmaster.metrics.run_series import attempt_points

        status = await self._status(run)
        attempts = status.attempts or []
        if len(attempts) != 2 or not attempts[1].started_at_step:
            raise _failed("it did not come back from a checkpoint")
        before, after = attempt_points(self._workspace, run, "loss").values()
        repeated = sorted(set(before) & set(after))
        broken = [step for step in repeated if before[step] != after[step]]
        if not repeated or broken:
            raise _failed(f"the loss differs after the resume, at steps {broken[:5]}")
        self._say(
            f"\nResumed from the checkpoint at step {attempts[1].started_at_step}; steps "
            f"{repeated[0]}–{repeated[-1]} were recomputed: {len(repeated)} losses, equal bit for "
            "bit."
        )
        return attempts[1].started_at_step, len(repeated)

    async def _show(self, run: str, killed_at: int) -> None:
        from trainmaster.metrics.plots.sketch import curve
        from trainmaster.runs.metrics.query_metrics import query_metrics

        answer = await query_metrics(
            self._workspace, [run], keys=["loss", "val_loss"], everything=True
        )
        series = answer.runs[run]
        points = [
            (float(x), float(y))
            for x, y in zip(series["loss"].steps, series["loss"].values, strict=True)
        ]
        self._say("\nloss over steps (the tick marks the kill)")
        self._say("\n".join(curve(points, mark_x=float(killed_at))))
        first, last = number_text(series["val_loss"].first), number_text(series["val_loss"].last)
        self._say(f"\nheld-out loss: {first} -> {last}")

    async def _sample(self, run: str) -> str:
        """Text that the trained model writes, by the run's own script."""
        folder = Path(str((await self._status(run)).folder))
        done = subprocess.run(
            [sys.executable, "train.py", "--sample", _PROMPT, "--tokens", "300"],
            cwd=folder,
            # A model this small gains nothing by more threads; on a busy machine it loses by them.
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0 or len(done.stdout) < len(_PROMPT):
            raise _failed(f"no text came from the model: {done.stderr.strip()[-300:]}")
        return done.stdout.rstrip()

    async def _say_where(self, run: str, spec: Path) -> None:
        folder = (await self._status(run)).folder
        self._say(f"\nThe run's files: {folder}")
        for name, text in (
            ("training_status.md", "the run on one page"),
            ("checkpoints_index.json", "its checkpoints"),
            ("attempts/", "configuration, log and events of each attempt"),
            ("final/", "the trained model"),
            ("train.sh", "the same training by hand"),
        ):
            self._say(f"  {name:<24} {text}")
        self._say(f"\nNext: {for_face(command('status', run))}")
        self._say(f"      {for_face(command('metrics', run, '--key', 'loss'))}")
        sources = "data.sources=[{path: /FOLDER/OF/TEXTS}]"
        self._say("\nThe same on texts of your own (`plan` in place of `launch` starts nothing):")
        own = for_face(command("launch", spec, "--set", "name=mine", "--set", sources))
        self._say(f"      {own}")

    async def _status(self, run: str) -> StatusAnswer:
        from trainmaster.runs.status.status import get_status

        return await get_status(self._workspace, run, detail=True)


def _write_spec(folder: Path, steps: int) -> Path:
    """The standard library's source as the corpus, and the spec beside it."""
    corpus = folder / "corpus"
    library = Path(os.__file__).parent
    files: Sequence[Path] = sorted(library.glob("*.py"))
    for package in _PACKAGES:
        files = [*files, *sorted((library / package).glob("*.py"))]
    for file in files:
        target = corpus / file.relative_to(library)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
    spec = folder / "stdlib-gpt.yaml"
    spec.write_text(demo_spec(steps))
    return spec


def demo_spec(steps: int) -> str:
    """The spec of the demonstration's training."""
    return _SPEC.replace("STEPS", str(steps)).replace("EVERY", str(_every(steps)))


def _every(steps: int) -> int:
    """Steps between checkpoints: at least one before the middle, where the trainer is killed."""
    return min(50, steps // 4)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _failed(what: str) -> StateError:
    return StateError(
        "INTERNAL",
        f"The demonstration failed: {what}.",
        f"{command('status', 'RUN')} and {command('logs', 'RUN')} show more; {command('doctor')} "
        "checks this machine.",
    )
