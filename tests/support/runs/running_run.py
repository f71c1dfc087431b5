"""What the tests that really train share: a small spec, homes that are cleaned up, processes."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from support.backends.kept_runtimes import kept_runtimes
from support.host.torch_check_cache import torch_checks

from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.hold import marker
from trainer_runtime.host.processes.identity import ProcessIdentity, carriers, is_alive, send
from trainmaster.cli import run as run_command_line

Answered = TypeVar("Answered")

LONGEST_S = 240.0
_LONGEST_COMMAND_S = 300
SPEC = """\
name: small
framework: nanogpt
model: {n_layer: 1, n_head: 2, d_model: 32, dropout: 0.1}
data: {sources: [{name: main, path: CORPUS}], seq_len: 32}
batch: {tokens: 256}
optimizer: {lr: 0.003}
steps: 60
eval: {every_steps: 20, batches: 2}
checkpoint: {every: 20, keep_latest: 3}
compute: {threads: 1}
"""
# Python reads these before the trainer's own code.
_PACED = """\
import sys
if "train.py" in sys.orig_argv:
    import time
    from torch.nn import functional

    plain = functional.cross_entropy

    def paced(*logits, **options):
        time.sleep(STEP_S)
        return plain(*logits, **options)

    functional.cross_entropy = paced
"""
_STANDING = """\
import sys
if "-m" not in sys.orig_argv and sys.orig_argv[-1] in CONFIGS:
    import os, signal, time
    import torch
    from torch.nn import functional

    plain, passes = functional.cross_entropy, 0

    def is_to_end():
        asked = signal.getsignal(signal.SIGTERM)  # the trainer's own, which is true once it came
        return bool(getattr(asked, "__self__", False))

    def standing(*logits, **options):
        global passes
        passes += torch.is_grad_enabled()
        while passes > MOST and not is_to_end() and not os.path.exists(UNTIL):
            time.sleep(0.02)
        return plain(*logits, **options)

    functional.cross_entropy = standing
"""
_WORDS = ("the", "loss", "falls", "slowly", "while", "every", "step", "reads", "another", "line")


def write_corpus(folder: Path) -> Path:
    """Three files of made-up text, some 60 kB, the same each time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip("abc", _made_up_texts(), strict=True):
        (folder / f"{name}.txt").write_text(text)
    return folder


@cache
def _made_up_texts() -> tuple[str, ...]:
    chosen = random.Random(7)
    texts = [[" ".join(chosen.choices(_WORDS, k=9)) for _ in range(400)] for _ in range(3)]
    return tuple("\n".join(lines) + "\n" for lines in texts)


def small_spec(folder: Path, **changes: str) -> str:
    """The small spec's text over a corpus in `folder`; `changes` replace top-level lines."""
    text = SPEC.replace("CORPUS", str(write_corpus(folder / "corpus")))
    lines = [line for line in text.splitlines() if line.split(":")[0] not in changes]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in changes.items())]) + "\n"


def pace(folder: Path, step_s: float = 0.02) -> str:
    """A spec's `env` for a training that only runs meanwhile: each of its steps lasts for so long
    and more, most of which it leaves to others."""
    return begin_with(folder / "paced", paced(step_s))


def paced(step_s: float = 0.02) -> str:
    """The code by which each step of a training lasts for so long and more."""
    return _PACED.replace("STEP_S", str(step_s))


def begin_with(folder: Path, code: str) -> str:
    """A spec's `env` by which every Python of its trainings runs this code first."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return f"{{PYTHONPATH: {folder}}}"


def standing_after(passes: int, *attempts: int, until: Path | None = None) -> str:
    """Code by which a training comes no further, in these attempts, than so many forward passes
    (of micro-batches that it learns from), until it is stopped: no fault comes too late. `until`:
    a file that ends the waiting, too."""
    configs = [f"attempts/{number}/config.json" for number in attempts]
    text = _STANDING.replace("CONFIGS", repr(configs)).replace("MOST", str(passes))
    return text.replace("UNTIL", repr(str(until or "")))


def own_run_id(name: str) -> str:
    """A run's id of this process of tests alone: ending what carries it ends nothing of others."""
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    return f"{name}-" + "".join(letters[os.getpid() >> 5 * n & 31] for n in range(6))


def run_async(work: Callable[[], Coroutine[Any, Any, Answered]]) -> Answered:
    return asyncio.run(work())


def wait_until(met: Callable[[], Any], what: str, bound_s: float = 120.0) -> Any:
    """What `met` gives once that is true; fails when it isn't within the bound.

    What takes long to evaluate is evaluated less often: it keeps others from working.
    """
    deadline = time.monotonic() + bound_s
    while True:
        began = time.monotonic()
        if found := met():
            return found
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"{what}: not within {bound_s:.0f} s")
        time.sleep(min(max(0.02, 5 * (now - began)), 1.0))


def let_it_run(seconds: float) -> None:
    """The moment of a fault is random by design; nothing is expected of the pause itself."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.05)


def standing_files(root: Path) -> Iterator[Path]:
    """The files of a tree that others are at work in; what goes meanwhile is passed over."""
    for place, _, names in os.walk(root):
        for name in names:
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                yield path


def holding(root: Path, words: bytes) -> list[str]:
    """The files below `root` in which the words stand, by their path."""
    found = []
    for path in standing_files(root):
        with suppress(FileNotFoundError):
            if words in path.read_bytes():
                found.append(str(path.relative_to(root)))
    return sorted(found)


def bytes_below(root: Path) -> int:
    """The size of the files that stand below `root`, halves included."""
    size_bytes = 0
    for path in standing_files(root):
        with suppress(FileNotFoundError):
            size_bytes += path.stat().st_size
    return size_bytes


class CommandLine:
    """The `trainmaster` command in a home of its own, as a user's shell would run it.

    A call runs the command in this process, unless `by_process` says otherwise: the same arguments,
    environment, output and exit code without another Python's start. `start` is always a process.
    """

    def __init__(
        self,
        home: Path,
        host: str = "local",
        root: Path | None = None,
        *,
        by_process: bool = False,
    ) -> None:
        self.home, self.host = home, host
        self.root = root or home / host
        self.by_process = by_process
        self.environment = {
            **os.environ,
            "TRAINMASTER_HOME": str(home),
            "TMUX_TMPDIR": str(home),
            "SCREENDIR": str(home / "screens"),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        self._lend(arguments)
        return subprocess.Popen(
            [sys.executable, "-c", "from trainmaster.cli import main; main()", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """The JSON that a command prints; fails where it ends with another exit code."""
        ended = self._by_process if self.by_process else self._here
        returned, output, errors = ended(*arguments, "--json")
        assert returned == code, (arguments, returned, output, errors)
        answer: dict[str, Any] = json.loads(output)
        return answer

    def _by_process(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=_LONGEST_COMMAND_S)
        return process.returncode, output, errors

    def _here(self, *arguments: str) -> tuple[int, str, str]:
        self._lend(arguments)
        output, errors = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            Path(os.devnull).open() as nothing,
            mock.patch.object(sys, "stdin", nothing),
            redirect_stdout(output),
            redirect_stderr(errors),
            _bounded(_LONGEST_COMMAND_S),
        ):
            returned = run_command_line(arguments)
        return returned, output.getvalue(), errors.getvalue()

    def _lend(self, arguments: Sequence[str]) -> None:
        if arguments[0] in ("launch", "lr-test", "demo", "attach", "adopt"):
            kept_runtimes.lend(self.home / "local", self.home / "debug")
            if self.host == "local":
                torch_checks.lend(self.root)

    def folder(self, run_id: str) -> RunFolder:
        """The run's folder on the host that this command line is for."""
        return RunFolder(self.root / "runs" / run_id)


@contextmanager
def _bounded(seconds: int) -> Iterator[None]:
    """Ends by an exception what is inside for longer."""

    def end(*_: object) -> None:
        raise TimeoutError(f"a command took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def processes_of(run: RunFolder) -> dict[str, int]:
    """The pids of the run's living processes: `trainer`, `hold`, `supervisor`."""
    found = {}
    newest = max((int(path.name) for path in run.root.glob("attempts/*")), default=0)
    identities = read_json(run.attempt(newest).process) or {}
    for name, identity in identities.items():
        if identity and is_alive(ProcessIdentity.from_dict(identity)):
            found[name] = int(identity["pid"])
    # Hold may have been killed before it noted whom it had started.
    if identities and "trainer" not in found:
        for process in carriers(marker(run.run_id, newest))[:1]:
            found["trainer"] = process.pid
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if is_supervisor(pid, run):
            found["supervisor"] = pid
    return found


def command_line(pid: int) -> list[bytes]:
    """A process's words; none where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def is_supervisor(pid: int, run: RunFolder) -> bool:
    try:
        return (
            b"supervise" in command_line(pid)
            and Path(f"/proc/{pid}/cwd").resolve() == run.root.resolve()
        )
    except OSError:
        return False


def kill_processes(root: Path) -> None:
    """End whatever the runs of a host have left, supervisors first, so that none comes back."""
    for folder in root.glob("runs/*"):
        run = RunFolder(folder)
        if not (folder / "attempts").is_dir():
            continue
        found = processes_of(run)
        for name in ("supervisor", "hold", "trainer"):
            if name in found:
                kill(found[name])
        for attempt in (folder / "attempts").iterdir():
            for process in carriers(marker(run.run_id, int(attempt.name))):
                send(process, signal.SIGKILL)


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
