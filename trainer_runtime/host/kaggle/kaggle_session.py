"""One session of a run as a Kaggle kernel: creates the run's folder, supervises and reports.

The pushed script (`templates/launch/kaggle.py.j2`) unpacks its payload and calls `run_session`. The
supervisor is the same as anywhere, as a child; what it leaves in `<working>/run` is the next
session's input. The exit code is 0 wherever the session itself did its work, so that its output is
kept: how the training ended stands in the journal.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.kaggle.log_frames import encode_frames
from trainer_runtime.core.kaggle.session_order import ORDER, RUN_FOLDER, SECRET_FILES, KernelOrder
from trainer_runtime.core.lease.session import Session
from trainer_runtime.core.processes.parent_death import die_with_parent
from trainer_runtime.core.protocol.figures import number_text, spoken_duration
from trainer_runtime.core.protocol.followed_files import JOURNAL, is_appended, is_replaced
from trainer_runtime.core.protocol.journal import Record, TransitionError
from trainer_runtime.core.protocol.journal_lines import (
    AttemptEnded,
    AttemptRunning,
    AttemptSignalled,
    AttemptStarting,
    FindingReported,
    StateEntered,
    journal_line,
)
from trainer_runtime.core.protocol.lines import Event, ProtocolError, decode, number
from trainer_runtime.core.protocol.masking import Mask
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import PlacementState
from trainer_runtime.host.answer.followed_run import FollowedRun
from trainer_runtime.host.files.configs import config_of
from trainer_runtime.host.files.files import LineReader, write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.secret_file import secret_values
from trainer_runtime.host.kaggle.session_folder import RUNTIME, lay_down
from trainer_runtime.host.kaggle.session_inputs import SessionError, find_input, link_cache
from trainer_runtime.host.processes.processes import BoxProcesses

_OVER = (PlacementState.COMPLETED, PlacementState.FAILED, PlacementState.STOPPED)
_MOST_AT_ONCE_BYTES = 8 << 20
Emit = Callable[[str], None]
WORKING, INPUTS = "/kaggle/working", "/kaggle/input"
WORKING_VARIABLE, INPUTS_VARIABLE = "KAGGLE_WORKING_DIR", "KAGGLE_INPUT_DIR"
_SAY_S = 60.0
# A young session is watched closely; a long one has a log that somebody can still open.
_SHORTEST_POLL_S, _LONGEST_POLL_S, _POLLS = 0.5, 15.0, 100.0
_MOST_FALLS = 20


def run_session(payload: str) -> int:
    """Run the session that the unpacked `payload` orders, to its end; the kernel's exit code."""
    begin_t = time.time()
    try:
        order = KernelOrder.of(
            decode_fields(Path(payload, ORDER).read_bytes(), ORDER, max_bytes=MAX_DOCUMENT_BYTES)
        )
        session = _open(order, begin_t)
        run = _begin(Path(payload), order, session)
    except SessionError as error:
        return _refused(str(error))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return _refused(f"This session can't begin: {error}")
    try:
        return _Running(run, order, session).to_the_end()
    finally:
        _leave(run)


def _refused(words: str) -> int:
    _say(words)
    return 1


def _say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {words}", flush=True)


def _open(order: KernelOrder, begin_t: float) -> Session:
    """Raises:
    SessionError: it is over before it begins.
    """
    session = Session(order.number, begin_t, begin_t + order.limit_s, order.margin_s)
    if session.over_t(0.0) <= begin_t:
        raise SessionError(
            f"A session of {order.limit_s:.0f} s with a margin of {order.margin_s:.0f} s leaves no "
            "time to train. Let the settings say kaggle.session_hours and kaggle.margin_minutes."
        )
    return session


def _begin(payload: Path, order: KernelOrder, session: Session) -> RunFolder:
    """The run's folder, ready for its supervisor."""
    working = Path(os.environ.get(WORKING_VARIABLE) or WORKING)
    inputs = Path(os.environ.get(INPUTS_VARIABLE) or INPUTS)
    run = RunFolder(working / RUN_FOLDER)
    _say(f"Session {order.number} of run {order.run_id}")
    before = None
    if order.previous is not None:
        before = find_input(inputs, order.previous) / RUN_FOLDER
        if not before.is_dir():
            raise SessionError(f"{before.parent} holds no run: the session before left nothing.")
    lay_down(payload, order, run, before)
    if order.secrets is not None:
        _give_secrets(find_input(inputs, order.secrets), payload, run)
    cache = config_of(run).data.cache_dir
    for slug in order.cache:
        for name in link_cache(find_input(inputs, slug), Path(cache)):
            _say(f"From the input {slug}: {name}")
    write_json(run.session, session.to_dict())
    return run


def _give_secrets(mounted: Path, payload: Path, run: RunFolder) -> None:
    """Links to files of the owner's alone outside of the output, which Kaggle keeps."""
    for name in SECRET_FILES:
        if (mounted / name).is_file():
            write_atomic(payload / name, (mounted / name).read_bytes(), 0o600)
            (run.root / f".{name}").unlink(missing_ok=True)
            (run.root / f".{name}").symlink_to(payload / name)


def _leave(run: RunFolder) -> None:
    """Remove from the output what the next session brings again, and all that is secret."""
    for name in SECRET_FILES:
        (run.root / f".{name}").unlink(missing_ok=True)
    with suppress(OSError):
        shutil.rmtree(run.root / RUNTIME)


class _Running:
    """A session whose folder is laid down."""

    def __init__(self, run: RunFolder, order: KernelOrder, session: Session) -> None:
        self._run = run
        self._session = session
        mask = Mask(secret_values(run).values())
        self._relay = Relay(run, order.journal_bytes, mask, print)
        self._account = Account(run)
        self._said_t = session.begin_t
        self._falls = 0
        signal.signal(signal.SIGTERM, self._end_early)

    def to_the_end(self) -> int:
        """Supervise and report until the run or the session is over; returns the exit code."""
        supervisor = self._start()
        while True:
            code = _ended_within(supervisor, self._pause_s())
            self._report()
            if code == 0 or time.time() >= self._last_t():
                break
            if code is not None:
                self._falls += 1
                if self._falls > _MOST_FALLS:
                    break
                _say(f"The supervisor ended with {code}, and is started again")
                supervisor = self._start()
        if code != 0:
            self._end_all(supervisor)
        self._relay.finish()
        return self._close(supervisor.returncode)

    def _end_all(self, supervisor: subprocess.Popen[bytes]) -> None:
        """End all processes: one that continues would keep the kernel from its end."""
        supervisor.kill()
        supervisor.wait()
        newest = self._account.record.current
        if newest is not None:
            BoxProcesses(self._run.root).kill(newest.number)

    def _start(self) -> subprocess.Popen[bytes]:
        self._run.supervisor_errors.parent.mkdir(exist_ok=True)
        with self._run.supervisor_errors.open("ab") as errors:
            return subprocess.Popen(
                [sys.executable or "python3", "-m", "trainer_runtime", "supervise", "."],
                cwd=self._run.root,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (there are no threads)
            )

    def _pause_s(self) -> float:
        age_s = time.time() - self._session.begin_t
        return min(_LONGEST_POLL_S, max(_SHORTEST_POLL_S, age_s / _POLLS))

    def _last_t(self) -> float:
        """When the session ends whatever its supervisor does: what is there has to be kept."""
        return (self._session.kill_t + self._session.end_t) / 2.0

    def _report(self) -> None:
        """Emit frames, news, and once a minute the status."""
        self._relay.poll()
        for words in self._account.news():
            _say(words)
        now = time.time()
        if now - self._said_t >= _SAY_S:
            self._said_t = now
            _say(self._account.standing())
        sys.stdout.flush()

    def _end_early(self, number: int, frame: object) -> None:
        """A signal that ends the session early leaves it a moment to save."""
        self._session = self._session.ended_at(time.time())
        with suppress(OSError):  # a disk may be full: then the session ends without that moment
            write_json(self._run.session, self._session.to_dict())

    def _close(self, code: int) -> int:
        for words in self._account.news():
            _say(words)
        if self._falls > _MOST_FALLS:
            return _refused(f"The supervisor ended {self._falls} times, at last with {code}")
        _say(self._account.standing())
        _say(f"Session {self._session.number} is over: {self._account.record.state.value}")
        return 0


def _ended_within(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Its exit code; None if it still runs after so long."""
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


class Relay:
    """Emits what is new of a run, from where the client's copy ends.

    That is all that lies there when the session begins, but for the journal: `journal_bytes`.
    """

    def __init__(self, run: RunFolder, journal_bytes: int, mask: Mask, emit: Emit) -> None:
        have = {**_have(run), JOURNAL: [journal_bytes, None, ""]}
        self._followed = FollowedRun(run.run_id, str(run.root), have)
        self._log = _LoggedFrames(mask, emit)

    def poll(self) -> None:
        """Emit what is new, the journal last."""
        now = time.monotonic()
        if self._followed.refresh(now, thoroughly=False):
            self._followed.send(self._log, _MOST_AT_ONCE_BYTES, now)

    def finish(self) -> None:
        """Emit all that is left; nobody writes any more."""
        now = time.monotonic()
        self._followed.refresh(now, thoroughly=True)
        self._followed.send(self._log, _MOST_AT_ONCE_BYTES, now)
        while self._followed.behind:
            self._followed.send(self._log, _MOST_AT_ONCE_BYTES, now)
        self._log.finish()


class _LoggedFrames:
    """Takes a follower's frames, and emits them masked, at the same offsets.

    What may be the beginning of a secret is held back until what follows it has come.
    """

    def __init__(self, mask: Mask, emit: Emit) -> None:
        self._mask = mask
        self._emit = emit
        self._held: dict[str, tuple[int, bytes]] = {}
        self.sent_bytes = 0

    def frame(self, header: dict[str, Any], data: bytes = b"") -> None:
        self.sent_bytes += len(data)
        name = str(header["file"])
        if "at" not in header:
            whole = self._mask.apply(data, final=True)
            self._print(name, 0, whole, {"whole": True, "mtime_ns": header["mtime_ns"]})
        elif data:
            at, before = self._held.pop(name, (header["at"], b""))
            if header.get("reset"):
                at, before = header["at"], b""
            self._append(name, at, before + data)

    def finish(self) -> None:
        for name, (at, rest) in self._held.items():
            self._print(name, at, self._mask.apply(rest, final=True), {})
        self._held.clear()

    def _append(self, name: str, at: int, data: bytes) -> None:
        masked = self._mask.apply(data, final=False)
        if masked:
            self._print(name, at, masked, {})
        if len(masked) < len(data):
            self._held[name] = (at + len(masked), data[len(masked) :])

    def _print(self, name: str, at: int, data: bytes, whole: Mapping[str, Any]) -> None:
        for line in encode_frames(name, at, data, **whole):
            self._emit(line)


def _have(run: RunFolder) -> dict[str, list[Any]]:
    """The files of the run as they lie there, as a follower is given them as known."""
    have: dict[str, list[Any]] = {}
    for path in [*run.root.glob("*"), *run.root.glob("attempts/*/*")]:
        name = path.relative_to(run.root).as_posix()
        if path.is_symlink() or not path.is_file():
            continue
        status = path.stat()
        if is_appended(name):
            have[name] = [status.st_size, status.st_ino, ""]
        elif is_replaced(name):
            have[name] = [status.st_size, status.st_mtime_ns]
    return have


class Account:
    """Reads the run's journal and its newest attempt's events, and puts them into words.

    Only what comes from closed lists is said, and numbers: no line of a log, no name.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._journal = LineReader(run.journal)
        self.record = Record()
        self._progress = Progress(0)
        self._events: LineReader | None = None
        self.news()  # of earlier sessions; those have reported it

    def news(self) -> list[str]:
        """What has happened since the last time, a line each."""
        lines = []
        for line in self._journal.read():
            try:
                event = decode(line)
                self.record.apply(event)
            except (ProtocolError, TransitionError):
                continue
            words = _words(event)
            if words is not None:
                lines.append(words)
        return lines

    def standing(self) -> str:
        """The training's present status."""
        self._read_events()
        progress = self._progress
        if progress.target_step is None:
            return f"Attempt {progress.attempt} is prepared" if progress.attempt else "Starting"
        left = progress.target_step - progress.step
        loss, pace = number(progress.last.get("loss")), progress.step_time_s
        saved = [step for step, checkpoint in progress.checkpoints.items() if checkpoint.verified]
        parts = [
            f"Step {progress.step} of {progress.target_step}",
            "" if loss is None else f"loss {number_text(loss)}",
            "" if pace is None else f"{number_text(pace)} s a step",
            "" if pace is None else f"about {spoken_duration(max(1.0, left * pace))} to go",
            f"newest checkpoint {max(saved)}" if saved else "",
        ]
        return ", ".join(part for part in parts if part)

    def _read_events(self) -> None:
        newest = self.record.current
        if newest is not None and newest.number != self._progress.attempt:
            self._progress = Progress(newest.number)
            self._events = LineReader(self._run.attempt(newest.number).events)
        for line in self._events.read() if self._events is not None else ():
            try:
                self._progress.apply(decode(line))
            except ProtocolError:
                continue


def _words(event: Event) -> str | None:
    """One event of the journal in words; None if it is of no interest."""
    line = journal_line(event)
    if isinstance(line, AttemptStarting):
        return f"Attempt {line.attempt} starts: {line.plan.why}"
    if isinstance(line, AttemptRunning):
        return f"Attempt {line.attempt} trains"
    if isinstance(line, AttemptSignalled):
        return f"Attempt {line.attempt} is to save and end: {line.why}"
    if isinstance(line, AttemptEnded):
        where = "" if line.last_step is None else f" at step {line.last_step}"
        return f"Attempt {line.attempt} ended{where}: {line.reason}"
    if isinstance(line, StateEntered) and line.state in _OVER:
        return f"The run is {line.state.value}: {line.reason}"
    if isinstance(line, FindingReported):
        return f"Found: {line.finding.code} ({line.finding.severity})"
    return None
