"""The host's own timer: ends the instance when its lease is over, whether or not a client lives.

One per host by `flock`, stateless over `lease.json`; any process may start another at any time.
The wall clock counts: an instance that slept through the end of its lease ends when it wakes.

A container's variables reach its first process, not a session over SSH: the key is read from where
providers' images leave it.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from trainer_runtime.core.answers.timer import TimerAnswer
from trainer_runtime.core.files.durable import is_locked, lock_within
from trainer_runtime.core.lease.lease import MOST_TO_STOP_S, Lease, OwnEnd
from trainer_runtime.core.protocol.figures import in_utc
from trainer_runtime.host.files.http_request import NotWebError, opened
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.lease.deadlines import read_lease
from trainer_runtime.host.lease.start_timer import LOCK, LOG, start_timer
from trainer_runtime.host.processes.processes import BoxProcesses

TIMEOUT_S = 30.0
TRIAL_TIMEOUT_S = 8.0
_FIRST_PROCESS = Path("/proc/1/environ")
_FILES = (Path("/etc/environment"), Path("/etc/rp_environment"), Path("/root/.ssh/environment"))
_LOCK_WAIT_S = 0.25
_LONGEST_NAP_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 300.0
# An instance that was asked to end gets this long before it is asked again.
_GOING_S = 60.0
_REVIVE_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class Answered:
    """Whether the provider took it, and what came of it in words that hold no key."""

    taken: bool
    report: str


def described(own_end: OwnEnd | None) -> str:
    """What is done at the lease's end, without what may be secret of an address."""
    if own_end is None:
        return "nothing: its provider has no key by which an instance could end itself"
    parts = urlsplit(own_end.url)
    return f"{own_end.method} {parts.scheme}://{parts.netloc.split('@')[-1]}{parts.path}"


def missing(own_end: OwnEnd, variables: Mapping[str, str]) -> str | None:
    """Why the instance can't end itself, as far as known; its key is tried where that is needed."""
    lacking = _missing_key(own_end, variables)
    if lacking is not None or not own_end.tried_by:
        return lacking
    trial = replace(own_end, method=own_end.tried_by)
    answered = _post(trial, variables[own_end.key_variable], TRIAL_TIMEOUT_S)
    return None if answered.taken else f"its key was tried, and {answered.report}"


def terminate_host(own_end: OwnEnd, variables: Mapping[str, str]) -> Answered:
    """Ask once. The machine goes away then; until it has, asking may be repeated."""
    lacking = _missing_key(own_end, variables)
    if lacking is not None:
        return Answered(False, lacking)
    return _post(own_end, variables[own_end.key_variable], TIMEOUT_S)


def host_variables(
    own: Mapping[str, str],
    first_process: Path = _FIRST_PROCESS,
    files: Sequence[Path] = _FILES,
) -> dict[str, str]:
    """The variables of this process, of the host's first one, and of the files that images write,
    in this order; programs are searched in all their paths."""
    sources = [dict(own), _of_process(first_process), *(_of_file(path) for path in files)]
    variables: dict[str, str] = {}
    for source in reversed(sources):
        variables |= source
    paths = dict.fromkeys(source["PATH"] for source in sources if source.get("PATH"))
    return {**variables, "PATH": os.pathsep.join(paths) or os.defpath}


def _missing_key(own_end: OwnEnd, variables: Mapping[str, str]) -> str | None:
    name = own_end.key_variable
    return None if variables.get(name) else f"it has no key called {name}"


def _of_process(path: Path) -> dict[str, str]:
    try:
        lines = path.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _of_file(path: Path) -> dict[str, str]:
    """Lines of `NAME=value` or `export NAME="value"`; nothing in them is carried out."""
    variables = {}
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").strip().partition("=")
        if equals and name.isidentifier():
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            variables[name] = value[1:-1] if quoted else value
    return variables


def _post(way: OwnEnd, key: str, timeout_s: float) -> Answered:
    headers = {"Authorization": f"Bearer {key}"}
    try:
        with opened(way.method, way.url, headers, timeout_s=timeout_s) as answer:
            return Answered(True, f"the provider answered {answer.status}")
    except NotWebError:
        return Answered(False, "its address is not of http or https")
    except urllib.error.HTTPError as error:
        with error:
            return Answered(False, f"the provider answered {error.code}")
    except urllib.error.URLError as error:  # its text may hold the address
        return Answered(False, f"no answer: {type(error.reason).__name__}")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Answered(False, f"no answer: {type(error).__name__}")


Ask = Callable[[Lease], Answered]


class LeaseTimer:
    """`clock`: Unix time; `ask` requests the instance's end; `runs`: its trainings."""

    def __init__(self, root: Path, clock: Callable[[], float], ask: Ask, runs: Trainers) -> None:
        self._root = root
        self._clock = clock
        self._ask = ask
        self._runs = runs
        self._lease: Lease | None = None
        self._asked_t: float | None = None
        self._pause_s = 0.0
        self._next_pause_s = _FIRST_PAUSE_S
        self._revived_t: float | None = None

    def tick(self) -> float | None:
        """Do what is due now; returns how long to sleep then, None without a lease."""
        self._read()
        lease, now = self._lease, self._clock()
        if lease is None:
            return None
        if now < lease.end_t:
            self._asked_t, self._next_pause_s = None, _FIRST_PAUSE_S
            return min(_LONGEST_NAP_S, self._before_the_end(lease, now))
        if _is_due(self._asked_t, self._pause_s, now):
            self._end(lease)
        return min(_LONGEST_NAP_S, self._pause_s)

    def _read(self) -> None:
        """Read the lease; one that was removed or can't be read stays as last known."""
        lease = read_lease(self._root)
        if lease is not None and lease != self._lease:
            self._lease = lease
            then = described(lease.own_end)
            self._note(f"lease until {in_utc(lease.end_t)}; then {then}")

    def _before_the_end(self, lease: Lease, now: float) -> float:
        """Supervisors stop their trainers in time by themselves: those that were killed, too."""
        before_s = MOST_TO_STOP_S if lease.stop_before_s is None else lease.stop_before_s
        left_s = lease.end_t - now
        if left_s > before_s:
            return left_s - before_s
        if _is_due(self._revived_t, _REVIVE_EVERY_S, now):
            self._revived_t = now
            self._apply(self._runs.wake, "started its supervisor, which had gone")
        return left_s

    def _end(self, lease: Lease) -> None:
        self._apply(self._runs.stop, "killed what was left of its training")
        if lease.own_end is None:
            answered = Answered(True, "the lease is over, and this instance can't end itself")
        else:
            answered = self._ask(lease)
        self._note(answered.report)
        # By the clock after what may have taken long.
        self._asked_t = self._clock()
        self._pause_s = max(self._next_pause_s, _GOING_S if answered.taken else 0.0)
        self._next_pause_s = min(2 * self._next_pause_s, _LONGEST_PAUSE_S)

    def _apply(self, act: Callable[[], list[str]], what: str) -> None:
        """Act on the runs; a failure there does not delay the lease's end."""
        try:
            for name in act():
                self._note(f"{name}: {what}")
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._note(f"{type(error).__name__} while handling the trainings here")

    def _note(self, line: str) -> None:
        with suppress(OSError), (self._root / LOG).open("a") as log:  # a disk may be full
            log.write(f"{in_utc(self._clock())} {line}\n")


class Trainers:
    """The trainings of a host, as its end needs them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def wake(self) -> list[str]:
        """Start a supervisor where a trainer runs without one; whose."""
        unwatched = [run for run, _ in self._trained() if not is_locked(run.supervisor_lock)]
        return [run.run_id for run in unwatched if _started(run)]

    def stop(self) -> list[str]:
        """Kill the trainers that still run; returns their runs. Attached ones are never ended."""
        stopped = []
        for run, attempt in self._trained():
            BoxProcesses(run.root).kill(attempt)
            stopped.append(run.run_id)
        return stopped

    def _trained(self) -> list[tuple[RunFolder, int]]:
        """The runs of which a trainer lives, and its attempt."""
        newest_attempts = []
        for folder in sorted(self._root.glob("runs/*")):
            names = [path.name for path in folder.glob("attempts/*") if path.name.isdigit()]
            newest = max(map(int, names), default=0)
            if newest and BoxProcesses(folder).observe(newest).state == "running":
                newest_attempts.append((RunFolder(folder), newest))
        return newest_attempts


def keep(root: Path) -> int:
    """Keep the host's lease until it is over; returns 0 if another timer does already."""
    lock = lock_within(root / LOCK, _LOCK_WAIT_S)
    if lock is None:
        return 0
    timer = LeaseTimer(root, time.time, _ask, Trainers(root))
    while (nap_s := timer.tick()) is not None:
        time.sleep(nap_s)
    os.close(lock)
    return 0


def timer_status(root: Path) -> TimerAnswer:
    """Whether a timer runs, what it lacks, and this machine's clock."""
    lease = read_lease(root)
    end = None if lease is None else lease.own_end
    lacks = None if end is None else missing(end, host_variables(os.environ))
    return TimerAnswer(
        runs=is_locked(root / LOCK),
        t=time.time(),
        end_t=None if lease is None else lease.end_t,
        lacks=lacks,
    )


def ensure_timer(root: Path, within_s: float = 10.0) -> TimerAnswer:
    """Run `start_timer`; returns the status once a timer runs."""
    started = start_timer(root)
    deadline = time.monotonic() + within_s
    while not is_locked(root / LOCK) and time.monotonic() < deadline:
        time.sleep(0.05)
    return replace(timer_status(root), started=started)


def _ask(lease: Lease) -> Answered:
    assert lease.own_end is not None
    return terminate_host(lease.own_end, host_variables(os.environ))


def _started(run: RunFolder) -> bool:
    """By the run's own runtime, which knows its files."""
    done = subprocess.run(
        [sys.executable, "-m", "trainer_runtime", "start", "."],
        cwd=run.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60.0,
        check=False,
    )
    return done.returncode == 0


def _is_due(last_t: float | None, pause_s: float, now: float) -> bool:
    """Also where the clock was set back since."""
    return last_t is None or not last_t <= now < last_t + pause_s
