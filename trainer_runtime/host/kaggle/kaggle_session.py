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
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.kaggle.session_order import ORDER, RUN_FOLDER, SECRET_FILES, KernelOrder
from trainer_runtime.core.lease.session import Session
from trainer_runtime.core.processes.parent_death import die_with_parent
from trainer_runtime.core.protocol.masking import Mask
from trainer_runtime.host.files.configs import config_of
from trainer_runtime.host.files.files import write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.secret_file import secret_values
from trainer_runtime.host.kaggle.log_relay import Relay
from trainer_runtime.host.kaggle.progress_log import Account
from trainer_runtime.host.kaggle.session_folder import RUNTIME, lay_down
from trainer_runtime.host.kaggle.session_inputs import SessionError, find_input, link_cache
from trainer_runtime.host.processes.processes import BoxProcesses

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
