"""The parent of a launcher: passes signals on to its ranks, and ends as they have ended.

`python3 -m trainer_runtime ranks CONFIG` stands between hold and `accelerate launch` or `torchrun`.
These kill their workers half a minute after a SIGTERM, and a save may take longer; and they end
with 1 whatever happened. So signals go to the ranks themselves, and the ranks write down their true
codes (core/processes/rank_exits.py). Nobody of an attempt outlives another: ranks die with the
launcher, the launcher with this process, and what fails ends them all.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.diagnosis.stacks.names import RANK_VARIABLE
from trainer_runtime.core.frameworks import launching
from trainer_runtime.core.processes.parent_death import adopt_orphans, die_with_parent
from trainer_runtime.core.processes.rank_exits import (
    ENDS,
    FOLDER_VARIABLE,
    RANKS,
    WATCHER_VARIABLE,
    RankEnd,
    end_file,
    outcome,
)
from trainer_runtime.core.protocol.rendezvous import RENDEZVOUS, Rendezvous
from trainer_runtime.host.files.files import read_fields, read_json, write_json
from trainer_runtime.host.processes.identity import (
    ProcessIdentity,
    descendants,
    identify,
    is_alive,
    send,
    wait_status,
)
from trainer_runtime.host.processes.signals import Signals, die_by, received

_POLL_S = 0.1  # until all ranks are found; from then on their ends wake us
_IDLE_S = 5.0
_FOLLOW_S = 45.0  # launchers give the others 30 s, once one has failed
_TIDY_S = 2.0  # for helpers that end by themselves once their rank has


def run_ranks(config_path: Path) -> int:
    """Starts the ranks and waits for their end; the attempt's exit code.

    Does not return where the attempt died by a signal: this process then dies by the same.
    """
    config = RunConfig.parse(config_path.read_bytes(), str(config_path))
    shared_rendezvous = _rendezvous(config_path.parent / RENDEZVOUS)
    rendezvous = shared_rendezvous or Rendezvous.of_variables(config.compute.nodes, os.environ)
    shared = rendezvous.node if rendezvous is not None and shared_rendezvous is None else 0
    # Without a supervisor, all nodes are in one folder.
    folder = config_path.parent / (f"{RANKS}-{shared}" if shared else RANKS)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    launch = launching.launch_command(config, sys.executable, str(config_path), rendezvous)
    environment = {
        **launching.variables(config, rendezvous),
        **os.environ,
        FOLDER_VARIABLE: str(folder.resolve()),
        WATCHER_VARIABLE: str(os.getpid()),
    }
    with received() as signals:
        adopt_orphans()
        launcher = _start(launch, environment)
        count = launching.processes(config)
        first = 0 if rendezvous is None else rendezvous.node * count
        ranks = _Ranks(launcher.pid, folder, range(first, first + count))
        while launcher.poll() is None:
            ranks.poll(signals)
            signals.wait(ranks.endings(), _POLL_S if ranks.are_awaited else _IDLE_S)
        ranks.poll(signals)
        _end_all()
        ranks.poll(signals)
    write_json(folder / ENDS, {"ends": [end.to_dict() for end in ranks.ends]})
    code = ranks.outcome(launcher.returncode)
    if code < 0:
        die_by(-code)
    return code


def _rendezvous(path: Path) -> Rendezvous | None:
    """How the ranks meet those of other nodes; None where all of them are here."""
    fields = read_fields(path)
    return None if fields is None else Rendezvous.of(fields)


def _start(launch: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """The launcher, in a session of its own: what a terminal sends is ours to pass on.

    What we have inherited, such as the run's lock, it inherits as well.
    """
    return subprocess.Popen(
        launch,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=False,
        preexec_fn=_dying_with(os.getpid()),  # noqa: PLW1509 (there are no threads)
    )


class _Rank:
    """One rank's process, from when it was found."""

    def __init__(self, process: ProcessIdentity) -> None:
        self.process = process
        self.asked: list[signal.Signals] = []
        self.end: RankEnd | None = None
        self.descriptor = -1  # readable at its end
        with suppress(OSError):  # kernels before 5.3 have none: then it is polled
            self.descriptor = os.pidfd_open(process.pid)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class _Ranks:
    """The ranks below a launcher: found, asked to end, and seen to end."""

    def __init__(self, launcher: int, folder: Path, expected: range) -> None:
        self.expected = len(expected)
        self._numbers = expected
        self._launcher = identify(launcher)
        self._folder = folder
        self._ranks: dict[int, _Rank] = {}
        self._asked: list[signal.Signals] = []
        self._launcher_asked = False
        self._failed_s: float | None = None

    @property
    def are_awaited(self) -> bool:
        """Whether they have to be polled."""
        if len(self._ranks) < self.expected or self._failed_s is not None:
            return True
        return any(rank.end is None and rank.descriptor < 0 for rank in self._ranks.values())

    @property
    def ends(self) -> list[RankEnd]:
        """The ranks' ends: those that were seen, or that are only on record."""
        missed = set(self._numbers) - self._ranks.keys()
        on_record = [self._end_on_record(number) for number in missed]
        seen = [rank.end for rank in self._ranks.values()]
        return [end for end in (*seen, *on_record) if end is not None]

    def outcome(self, launcher_code: int) -> int:
        """The attempt's exit code, or minus the signal it died by, once no rank lives."""
        if self._launcher_asked and not self._ranks:
            return -self._asked[-1]
        return outcome(self.ends, self.expected, launcher_code)

    def endings(self) -> list[int]:
        """Descriptors that become readable at a rank's end."""
        return [rank.descriptor for rank in self._ranks.values() if rank.descriptor >= 0]

    def poll(self, signals: Signals) -> None:
        """Take in what has changed, and do what follows from it."""
        if len(self._ranks) < self.expected and self._launcher is not None:
            for number, process in ranks_below(self._launcher).items():
                if number not in self._ranks:
                    self._ranks[number] = _Rank(process)
        self._asked += signals.take()
        self._pass_on()
        for number, rank in self._ranks.items():
            if rank.end is None and not is_alive(rank.process):
                rank.end = self._end_of(number, rank.process)
                rank.close()
        self._end_the_others()

    def _pass_on(self) -> None:
        """Have each rank hear what came, also one that has just begun; each signal once."""
        if self._asked and not self._ranks and not self._launcher_asked:
            self._launcher_asked = True
            if self._launcher is not None:  # there is nothing to save yet
                send(self._launcher, self._asked[-1])
        for rank in self._ranks.values():
            for number in self._asked[len(rank.asked) :]:
                send(rank.process, number)
            rank.asked = list(self._asked)

    def _end_of(self, number: int, process: ProcessIdentity) -> RankEnd:
        status = wait_status(process)
        on_record = self._end_on_record(number)
        if on_record is not None and on_record.code is not None:
            return on_record
        if status is not None and os.WIFSIGNALED(status):
            return RankEnd(number, time.time(), signal=os.WTERMSIG(status))
        if status is not None:
            return RankEnd(number, time.time(), code=os.WEXITSTATUS(status))
        # The launcher was the first to see it.
        return on_record or RankEnd(number, time.time(), code=1)

    def _end_on_record(self, number: int) -> RankEnd | None:
        """The end that a rank recorded itself; it records every end of its own."""
        recorded = read_json(self._folder / end_file(number))
        if recorded is None:
            return None
        if recorded.get("code") is None:
            return RankEnd(number, time.time(), signal=signal.SIGKILL)
        return RankEnd(number, float(recorded["t"]), code=int(recorded["code"]))

    def _end_the_others(self) -> None:
        """End the ranks that would wait for ever for a failed one."""
        now = time.monotonic()
        if self._failed_s is None and any(
            rank.end and rank.end.failed for rank in self._ranks.values()
        ):
            self._failed_s = now
        if self._failed_s is not None and now - self._failed_s > _FOLLOW_S:
            for rank in self._ranks.values():
                if rank.end is None:
                    send(rank.process, signal.SIGKILL)


def ranks_below(launcher: ProcessIdentity) -> dict[int, ProcessIdentity]:
    """The processes that a launcher gave a rank, by rank."""
    processes: dict[int, ProcessIdentity] = {}
    for process in descendants(launcher.pid):
        rank = _rank_of(process.pid)
        if rank is not None:  # what a rank starts carries its number as well, and comes later
            processes.setdefault(rank, process)
    return processes


def _rank_of(pid: int) -> int | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    name = f"{RANK_VARIABLE}=".encode()
    values = [pair[len(name) :] for pair in environment.split(b"\0") if pair.startswith(name)]
    return int(values[0]) if values and values[0].isdigit() else None


def _end_all() -> None:
    """Leave no process behind; orphans have become our own children."""
    deadline = time.monotonic() + _TIDY_S
    while left := descendants(os.getpid()):
        if time.monotonic() > deadline:
            for process in left:
                send(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _dying_with(parent: int) -> Callable[[], None]:
    """What a child does before it becomes the launcher: it dies with `parent`."""

    def set_up() -> None:
        die_with_parent()
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return set_up
