"""Real trainings that take turns: nanoGPT's `train.py`, and a run that was launched.

Each is stopped by a signal while another has the machine. A step lasts from the end of the one
before it, so whatever a program does between steps is counted.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from support.benchmarks.nanogpt import ITERATION, nanogpt_command, nanogpt_folder
from support.runs.running_run import kill_processes, processes_of

from trainer_runtime.host.files.layout import RunFolder

REPOSITORY = Path(__file__).parents[3]
_VOCABULARY = 320
_SETTLING_STEPS = 2  # of each turn: the first one contains the pause
_LONGEST_START_S = 300.0
_WARM_STEPS = 25  # by default the first save is at step 20
# Of a slow model, whose steps are alike sooner.
_FEWER_WARM_STEPS, _WARM_AFTER_S = 5, 8.0


@dataclass(frozen=True, slots=True)
class TrainingSize:
    """A model and its batch: layers, width, context, sequences of a step."""

    n_layer: int
    n_head: int
    d_model: int
    seq_len: int
    batch: int

    def __str__(self) -> str:
        return f"{self.n_layer} × {self.d_model}, T {self.seq_len}, B {self.batch}"


SMALL, LARGE = TrainingSize(4, 4, 128, 64, 12), TrainingSize(6, 6, 384, 256, 8)


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step; `seconds` since the end of the one before."""

    number: int
    loss: float
    seconds: float


class Training(Protocol):
    """A training under way."""

    def steps(self) -> list[Step]:
        """Every step so far."""

    def processes(self) -> Sequence[int]:
        """The pids that compute."""


class NanoGPT(AbstractContextManager["NanoGPT"]):
    """nanoGPT's `train.py` over the same bytes. It never saves: its evaluation, to which a save is
    bound, would count against it."""

    def __init__(
        self, folder: Path, size: TrainingSize, *, autocast: bool = False, compiled: bool = False
    ) -> None:
        folder.mkdir(parents=True)
        _write_tokens(folder)
        self._output = folder / "output.log"
        settings = {
            "device": "cpu",
            "dtype": "float32",
            "compile": compiled,
            "n_layer": size.n_layer,
            "n_head": size.n_head,
            "n_embd": size.d_model,
            "block_size": size.seq_len,
            "batch_size": size.batch,
            "gradient_accumulation_steps": 1,
            "bias": False,
            "learning_rate": 1e-3,
            "warmup_iters": 20,
            "decay_lr": True,
            "lr_decay_iters": 20_000,
            "min_lr": 1e-4,
            "max_iters": 20_000,
            "eval_iters": 1,
            "eval_interval": 10**9,
        }
        command = nanogpt_command(folder, _VOCABULARY, settings, autocast=autocast)
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                command, cwd=nanogpt_folder(), stdout=output, stderr=subprocess.STDOUT
            )

    def steps(self) -> list[Step]:
        text = self._output.read_text()
        if self._process.poll() is not None:
            raise RuntimeError(f"nanoGPT has ended:\n{text[-2000:]}")
        found = ITERATION.finditer(text[: text.rfind("\n") + 1])
        return [Step(int(m[1]) + 1, float(m[2]), float(m[3]) / 1e3) for m in found]

    def is_warm(self) -> bool:
        return _have_a_pace(self.steps())

    def processes(self) -> Sequence[int]:
        return [self._process.pid]

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


class LaunchedRun(AbstractContextManager["LaunchedRun"]):
    """A run of the local host, in a home of its own, launched by the command line of `checkout`.

    `changes` are lines of its spec; checkpoints and the environment are as by default.
    """

    def __init__(
        self, folder: Path, size: TrainingSize, checkout: Path = REPOSITORY, **changes: str
    ) -> None:
        self._home = folder / "home"
        model = f"{{n_layer: {size.n_layer}, n_head: {size.n_head}, d_model: {size.d_model}"
        lines = {
            "name": "bench",
            "framework": "nanogpt",
            "model": f"{model}, vocab_size: {_VOCABULARY}, style: gpt2}}",
            "data": f"{{sources: [{{name: main, path: {corpus(folder)}}}], tokenizer: byte, "
            f"seq_len: {size.seq_len}}}",
            "batch": f"{{tokens: {size.batch * size.seq_len}, micro_batch: {size.batch}}}",
            "optimizer": "{lr: 0.001}",
            "schedule": "{kind: cosine, warmup_steps: 20}",
            "steps": "20000",
            **changes,
        }
        spec = folder / "spec.yaml"
        spec.write_text("".join(f"{name}: {value}\n" for name, value in lines.items()))
        run_command(checkout, self._home, "launch", str(spec), "--json")

    @property
    def root(self) -> Path:
        """The run's folder."""
        return next((self._home / "local" / "runs").iterdir())

    def steps(self) -> list[Step]:
        path = self.root / "attempts" / "1" / "events.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        found = [event for line in lines if (event := json.loads(line))["kind"] == "metric"]
        before = found[:1] + found[:-1]
        return [
            Step(event["step"], event["values"]["loss"], event["t"] - last["t"])
            for event, last in zip(found, before, strict=True)
        ]

    def is_warm(self) -> bool:
        """Also its first save is over."""
        return any(self.root.glob("checkpoints/step-*")) and _have_a_pace(self.steps())

    def processes(self) -> Sequence[int]:
        found = processes_of(RunFolder(self.root))
        return [found["trainer"]] if "trainer" in found else []

    def __exit__(self, *_: object) -> None:
        _signal(self, signal.SIGCONT)
        kill_processes(self._home / "local")
        if shutil.which("tmux"):
            environment = {**os.environ, "TMUX_TMPDIR": str(self._home)}
            subprocess.run(["tmux", "kill-server"], env=environment, capture_output=True)


def run_command(checkout: Path, home: Path, *arguments: str) -> str:
    """What a `trainmaster` command of a checkout prints; raises CalledProcessError."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{checkout / 'server'}:{checkout}",
        "TRAINMASTER_HOME": str(home),
        "TMUX_TMPDIR": str(home),
    }
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", "from trainmaster.cli import main; main()", *arguments]
    # Elsewhere than in a checkout, whose packages would come first.
    return subprocess.check_output(command, env=environment, cwd=home, text=True)


def corpus(folder: Path) -> Path:
    """A text of a few MB: the sources of this repository."""
    path = folder / "corpus" / "text.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    folders = ("trainer_runtime", "server", "docs")
    files = [file for name in folders for file in (REPOSITORY / name).rglob("*.[pm][yd]")]
    path.write_bytes(b"\n".join(file.read_bytes() for file in sorted(files)))
    return path


def started_trainings(
    stack: ExitStack,
    folder: Path,
    size: TrainingSize,
    peers: Mapping[str, Mapping[str, bool]],
    ours: Mapping[str, Mapping[str, str]],
    before: Path | None = None,
    *,
    within_s: float = _LONGEST_START_S,
) -> dict[str, Training]:
    """Warm, stopped trainings by name: nanoGPT's with their options, launched ones with changes of
    their spec, and `before` by an earlier checkout. They end with `stack`.

    Those are left out that are not warm within their part of `within_s`.
    """
    starts: dict[str, Callable[[], NanoGPT | LaunchedRun]] = {
        name: partial(NanoGPT, folder / name, size, **options) for name, options in peers.items()
    }
    if before:
        starts["before"] = partial(LaunchedRun, folder / "before", size, before)
    for name, changes in ours.items():
        starts[name] = partial(LaunchedRun, folder / name, size, REPOSITORY, **changes)
    trainings: dict[str, Training] = {}
    ends_t = time.monotonic() + within_s
    for number, (name, start) in enumerate(starts.items()):
        with ExitStack() as started:
            training = started.enter_context(start())
            if warm_up(training, (ends_t - time.monotonic()) / (len(starts) - number)):
                trainings[name] = training
                stack.push(started.pop_all())
    return trainings


def warm_up(training: NanoGPT | LaunchedRun, within_s: float) -> bool:
    """Let a training run until its pace is that of its later steps, then stop it; False where that
    takes longer."""
    deadline = time.monotonic() + within_s
    while not training.is_warm():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    _signal(training, signal.SIGSTOP)
    return True


def _have_a_pace(steps: Sequence[Step]) -> bool:
    took_s = sum(step.seconds for step in steps)
    return len(steps) >= (_FEWER_WARM_STEPS if took_s >= _WARM_AFTER_S else _WARM_STEPS)


def turn_ms(training: Training, seconds: float, settling_s: float = 0.0) -> float:
    """The mean milliseconds of a step of a stopped training that runs for so long by itself, after
    `settling_s`."""
    _signal(training, signal.SIGCONT)
    time.sleep(settling_s)
    before = len(training.steps()) + _SETTLING_STEPS
    ends = time.monotonic() + seconds
    while time.monotonic() < ends or len(training.steps()) < before + 2:
        time.sleep(0.1)
    _signal(training, signal.SIGSTOP)
    taken = [step.seconds for step in training.steps()[before:]]
    return 1e3 * sum(taken) / len(taken)


def _signal(training: Training, which: signal.Signals) -> None:
    for pid in training.processes():
        os.kill(pid, which)


def _write_tokens(folder: Path) -> None:
    """The corpus as nanoGPT's own preparation leaves it: 16 bits a token."""
    text = array("H", iter(corpus(folder).read_bytes()))
    for name in ("train", "val"):
        (folder / f"{name}.bin").write_bytes(text.tobytes())
