"""Real `hold` and `ranks` processes over a launcher that acts as torchrun does, without torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.runs.running_run import wait_until

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.processes.rank_exits import RankEnd, outcome
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.hold import marker
from trainer_runtime.host.processes.identity import (
    ProcessIdentity,
    carriers,
    identify,
    is_alive,
    send,
)
from trainer_runtime.host.processes.processes import BoxProcesses
from trainer_runtime.host.supervise.attempts import pids
from trainer_runtime.host.watch.inspection import Inspection, inspect

REPOSITORY = Path(__file__).parents[3]
# What torchrun does: sessions of their own, a tenth of a second until an end is seen, and with the
# first that fails SIGTERM for the others. Without the half minute that it then gives them.
LAUNCHER = """\
import os, pathlib, signal, subprocess, sys, time
words = sys.argv[sys.argv.index("train.py"):]
pathlib.Path("launcher").write_text(str(os.getpid()))
time.sleep(float(os.environ.get("LAUNCHER_TAKES", "0")))
ranks = [
    subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"},
        start_new_session=True,
    )
    for rank in range(2)
]
def end(*_):
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        rank.wait()
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
codes = [None, None]
while None in codes:
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    time.sleep(0.1)
    codes = [rank.poll() for rank in ranks]
    if any(codes):
        end()
"""
SCRIPT = """\
import json, os, pathlib, signal, sys, time
rank = int(os.environ["RANK"])
folder = pathlib.Path(os.environ["TRAINMASTER_RANKS"])
from trainer_runtime.core.processes.parent_death import die_with_parent
die_with_parent()
def write(code):
    record = {"pid": os.getpid(), "code": code, "t": time.time()}
    folder.joinpath(f"{rank}.new").write_text(json.dumps(record))
    folder.joinpath(f"{rank}.new").rename(folder / f"{rank}.json")
def leave(code):
    write(code)
    sys.exit(0)
def wait():
    while True:
        time.sleep(60)
def follow():
    while not asked:
        time.sleep(0.01)
    leave(1)
def wait_for_end_of(other):
    record = folder / f"{other}.json"
    while not record.exists() or json.loads(record.read_text())["code"] is None:
        time.sleep(0.01)
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
write(None)
exec(json.load(open(sys.argv[1]))["does"])
"""


class Launched:
    """A run of two ranks, its attempts held one after the other."""

    def __init__(self, root: Path) -> None:
        self.run = RunFolder(root)
        self.processes: list[subprocess.Popen[bytes]] = []
        package = root / "packages/accelerate/commands"
        package.mkdir(parents=True)
        (package / "launch.py").write_text(LAUNCHER)
        for folder in (package, package.parent):  # before the real one
            (folder / "__init__.py").touch()
        (root / "train.py").write_text(SCRIPT)

    def start(self, does: str, **variables: str) -> subprocess.Popen[bytes]:
        """Hold an attempt whose ranks do this Python."""
        folder = self.run.attempt(1)
        folder.root.mkdir(parents=True)
        path = f"{self.run.root / 'packages'}:{REPOSITORY}"
        config = {
            "does": does,
            "framework": "hf",
            "compute": {"device": "cpu", "processes": 2, "strategy": "ddp", "threads": 3},
            "env": {"PYTHONPATH": path, **variables},
        }
        folder.config.write_text(json.dumps(config))
        process = subprocess.Popen(
            [sys.executable, "-m", "trainer_runtime", "hold", str(self.run.root), "1"],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def hold(self, does: str) -> tuple[int | None, int | None]:
        """The code and the signal of an attempt's end."""
        self.start(does).wait(timeout=60)
        return self.end()

    def end(self) -> tuple[int | None, int | None]:
        """As hold has written it, once it is gone; nobody of the attempt lives on."""
        self.processes[-1].wait(timeout=60)
        assert self.living() == []
        ended = read_json(self.run.attempt(1).exit) or {}
        return ended.get("code"), ended.get("signal")

    def rank(self, number: int) -> ProcessIdentity:
        """A rank that has come to its own code."""

        def found() -> ProcessIdentity | None:
            rank = read_json(self.run.attempt(1).ranks / f"{number}.json")
            return identify(int(rank["pid"])) if rank else None

        return wait_until(found, f"rank {number}")

    def watcher(self) -> ProcessIdentity:
        """Who watches over the launcher, once hold has noted whom it has started."""
        process = self.run.attempt(1).process
        trainer = wait_until(lambda: (read_json(process) or {}).get("trainer"), "the watcher")
        return ProcessIdentity.from_dict(trainer)

    def launcher(self) -> ProcessIdentity:
        """The launcher, once it runs."""

        def found() -> ProcessIdentity | None:
            path = self.run.root / "launcher"
            text = path.read_text() if path.exists() else ""
            return identify(int(text)) if text else None

        return wait_until(found, "the launcher")

    def living(self) -> list[ProcessIdentity]:
        return carriers(marker(self.run.run_id, 1))

    def terminate(self) -> None:
        self.watcher()  # until it is noted, all that carry the marker would be signalled
        BoxProcesses(self.run.root).terminate(1)

    def log(self) -> str:
        return self.run.attempt(1).train_log.read_text()


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    # Processes are found by the run's name: tests beside this one have runs of their own.
    made = Launched(tmp_path / f"run-{os.getpid()}")
    yield made
    BoxProcesses(made.run.root).kill(1)
    for process in made.processes:
        process.wait(timeout=60)


def test_a_code_of_all_ranks_is_the_attempts(launched: Launched) -> None:
    assert launched.hold("print(os.environ['OMP_NUM_THREADS']); leave(76)") == (76, None)
    assert launched.log().count("3\n") == 2


def test_sigterm_reaches_each_rank_once_and_a_long_save_is_waited_for(launched: Launched) -> None:
    # Rank 1 leaves at once; a launcher that heard of its 75 would end rank 0 in its save.
    launched.start(
        "while not asked: time.sleep(0.01)\n"
        "time.sleep(1.0 if rank == 0 else 0.0)\n"
        "print('asked', len(asked))\n"
        "leave(75)"
    )
    launched.rank(0), launched.rank(1)
    launched.terminate()
    assert launched.end() == (75, None)
    assert launched.log().count("asked 1\n") == 2


def test_a_rank_that_is_killed_ends_the_attempt_by_that_signal(launched: Launched) -> None:
    launched.start("follow()")
    launched.rank(0)
    send(launched.rank(1), signal.SIGKILL)
    assert launched.end() == (None, signal.SIGKILL)


@pytest.mark.parametrize(
    ("does", "end"),
    [
        ("(write(3), sys.exit(3)) if rank == 1 else follow()", (3, None)),
        ("leave(77) if rank == 1 else (wait_for_end_of(1), write(1), sys.exit(1))", (77, None)),
        ("leave(0)", (0, None)),
    ],
)
def test_the_first_failure_is_the_attempts_end(
    launched: Launched, does: str, end: tuple[int | None, int | None]
) -> None:
    assert launched.hold(does) == end


def test_a_rank_that_breaks_down_is_reported_with_its_signal(launched: Launched) -> None:
    launched.start(
        "while not asked: time.sleep(0.01)\n"
        "signal.signal(15, signal.SIG_DFL)\n"
        "pathlib.Path(f'done{rank}').touch()\n"
        "while not pathlib.Path('done0').exists(): time.sleep(0.01)\n"
        "os.kill(os.getpid(), 11) if rank == 1 else wait()"
    )
    launched.rank(0), launched.rank(1)
    launched.terminate()  # heard once the ranks are watched over
    assert launched.end() == (None, signal.SIGSEGV)


@pytest.mark.parametrize("victim", ["watcher", "launcher"])
def test_nobody_outlives_who_started_them(launched: Launched, victim: str) -> None:
    launched.start("wait()")
    launched.rank(0), launched.rank(1)
    killed: Callable[[], ProcessIdentity] = getattr(launched, victim)
    send(killed(), signal.SIGKILL)
    wait_until(lambda: not launched.living(), "the end of whom they have started")
    assert launched.end() == (None, signal.SIGKILL)
    os.close(wait_until(lambda: try_lock(launched.run.trainer_lock), "the lock is free"))


def test_sigterm_before_there_is_a_rank_ends_the_launcher(launched: Launched) -> None:
    launched.start("wait()", LAUNCHER_TAKES="60")
    launched.launcher()
    launched.terminate()
    assert launched.end() == (None, signal.SIGTERM)


@pytest.mark.slow
def test_stacks_of_both_ranks_are_reported(launched: Launched) -> None:
    launched.start(
        "import faulthandler\n"
        "file = open(folder.parent / f'stacks-rank{rank}.txt', 'a')\n"
        "faulthandler.register(signal.SIGUSR2, file=file, all_threads=True)\n"
        "pathlib.Path(f'answers{rank}').touch()\n"
        "wait()"
    )
    for rank in range(2):
        wait_until((launched.run.root / f"answers{rank}").exists, f"rank {rank} answers")
    first, second = launched.rank(0), launched.rank(1)

    def answered() -> Inspection | None:
        found = inspect(launched.run, 1)
        return found if all(one.process.samples for one in found.ranks) else None

    found = wait_until(answered, "stacks of both")

    assert [(one.rank, one.process.pid) for one in found.ranks] == [
        (0, first.pid),
        (1, second.pid),
    ]
    assert found.world_size == 2
    assert {first.pid, second.pid} < set(pids(launched.run, 1))
    assert is_alive(first)


def test_whom_the_launcher_ends_is_no_cause() -> None:
    crashed, victim = RankEnd(1, 100.0, code=1), RankEnd(0, 100.2, signal=signal.SIGTERM)
    assert outcome([victim, crashed], 2, 1) == 1
    killed, broken = RankEnd(1, 100.2, signal=9), RankEnd(0, 100.1, code=1)
    assert outcome([broken, killed], 2, 1) == -9
    late = RankEnd(0, 130.2, signal=9)
    assert outcome([crashed, late], 2, 1) == 1


def test_a_save_that_failed_on_one_rank_is_the_attempts_end() -> None:
    assert outcome([RankEnd(0, 9.0, code=1), RankEnd(1, 5.0, code=75)], 2, 0) == 1


def test_a_launcher_that_fails_by_itself_is_reported() -> None:
    assert outcome([], 2, 2) == 2
    ended = [RankEnd(0, 5.0, code=0), RankEnd(1, 5.0, code=0)]
    assert outcome(ended, 2, 1) == 0  # at the interpreter's end, with everything saved
