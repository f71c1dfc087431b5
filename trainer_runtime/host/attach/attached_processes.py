"""Presents an attached training to the supervisor as an attempt: it is only watched.

Nothing is started, signalled or ended. What its log says is copied to `train.log`, and becomes the
events of a trainer; when its process is gone or its log has fallen silent, the attempt has ended.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from trainer_runtime.core.config import AttachedConfig
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.signatures import Outcome, find_in
from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.host.attach.capture import Capture
from trainer_runtime.host.attach.log_copy import LogCopy
from trainer_runtime.host.attach.log_events import LogEvents, tail
from trainer_runtime.host.attach.not_copied import NotCopied
from trainer_runtime.host.attach.unread_log import UnreadLog
from trainer_runtime.host.files.configs import config_of
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.write_room import WriteRoom
from trainer_runtime.host.processes.identity import ProcessIdentity, current_epoch, is_alive
from trainer_runtime.host.processes.open_files import writers
from trainer_runtime.host.processes.processes import Observation

_LONGEST_POLL_S = 0.5  # of copying and reading at a time: the heartbeat is not to wait for it
_CAPTURE_WITHIN_S = 30.0
_READ_AT_THE_END_BYTES = 64 << 20
_READ_BYTES = 1 << 16
_LAST_LINES = 40
_TROUBLE = re.compile(
    rb"Traceback \(most recent call last\)|^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b(?::|$)"
    rb"|\b(?:Segmentation fault|core dumped|Aborted)\b|^Killed\b",
    re.MULTILINE,
)
GONE = "its process is gone"
_CHECK_EVERY_S = 1.0
_GONE_FOR_S = 2.0
_GAPS = 10  # so many of the longest silence so far are no end yet


class AttachedProcesses:
    """The supervisor's `Processes` for a run with `framework: attached`."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._run = RunFolder(folder)
        self._clock = clock
        self._source = config_of(self._run).attached or AttachedConfig.of(Fields({}))
        self._watched: _Watched | None = None
        self._given_up = False
        self._problem_since: float | None = None

    def prepare(self, attempt: int) -> None:
        """There is nothing to prepare."""

    def prepared(self, attempt: int) -> int | None:
        return 0

    def start(self, attempt: int) -> None:
        self._run.attempt(attempt).source.touch()

    def observe(self, attempt: int) -> Observation:
        if not self._run.attempt(attempt).source.exists():
            return Observation("absent")
        problem = self._take_up(attempt)
        if self._given_up:
            return Observation("ended", Exit(None, None, unseen="it is not watched any more"))
        if self._watched is None:
            return self._wait(problem)
        try:
            end = self._watched.poll()
        except OSError:
            self._let_go()  # the files on the disk say where to resume
            raise
        if end is None:
            return Observation("running")
        if end == GONE:
            in_lines = self._source.pane is None
            end = end_in_log(self._run.attempt(attempt).train_log, in_lines=in_lines)
        failure = self._failure(attempt)
        return Observation("ended", Exit(None, None, unseen=end, failure=failure))

    def terminate(self, attempt: int) -> None:
        """Watch it no longer; the training is left alone, its pane as it was found."""
        if self._given_up:
            return
        self._given_up = True
        if self._watched is not None:
            self._watched.end()
        self._let_go()

    def kill(self, attempt: int) -> None:
        """The same: an attached training is never ended."""
        self.terminate(attempt)

    def _take_up(self, attempt: int) -> str | None:
        """Begin or resume watching; returns what prevents it, if anything."""
        if self._watched is not None or self._given_up:
            return None
        pane = self._source.pane
        capture = None
        if pane is not None:
            folder = self._run.attempt(attempt).root
            capture = Capture(folder, pane, with_history=self._source.origin != "end")
            problem = capture.begin()
            if problem is not None:
                return problem
        self._watched = _Watched(self._run, attempt, self._source, capture, self._clock)
        return None

    def _wait(self, problem: str | None) -> Observation:
        now = self._clock()
        self._problem_since = self._problem_since or now
        if now - self._problem_since < _CAPTURE_WITHIN_S:
            return Observation("running")
        return Observation(
            "ended", Exit(None, None, unseen=f"nothing can be read of it: {problem}")
        )

    def _failure(self, attempt: int) -> str | None:
        """What the end of its log says went wrong, where that is sure to have ended it."""
        pieces = tail(self._run.attempt(attempt).train_log, _READ_AT_THE_END_BYTES)
        for finding in find_in(pieces, Outcome()):
            if finding.severity == "critical":
                return f"{finding.code}: {finding.explanation}"
        return None

    def _let_go(self) -> None:
        if self._watched is not None:
            self._watched.close()
            self._watched = None


class _Watched:
    """One attempt's log under way: from its source into the copy, from there into events."""

    def __init__(
        self,
        run: RunFolder,
        attempt: int,
        source: AttachedConfig,
        capture: Capture | None,
        clock: Callable[[], float],
    ) -> None:
        folder = run.attempt(attempt)
        self._clock = clock
        self._capture = capture
        self._setup_log = folder.setup_log
        room = WriteRoom(run, attempt, folder.train_log)
        self._events = LogEvents(folder, clock, pattern=source.pattern, room=room)
        if capture is not None:
            parts, successors = [capture.history, capture.spool], capture.running
        else:
            parts = [Path(source.path or "")]
            successors = partial(writers, parts[0])
        begin = source.begin
        self._copy = LogCopy(
            *(folder.train_log, folder.source, parts, begin, clock, self._warn), room=room.take
        )
        self._not_copied = NotCopied(self._events)
        self._unread = UnreadLog(self._events, source.pattern)
        processes = [ProcessIdentity.from_dict(identity) for identity in source.processes]
        silence_s = source.ends_after_s
        self._foreign = ForeignProcess(processes, successors, parts[-1], silence_s)
        self._live = self._is_behind = False
        self._length = self._copy.position[1]
        self._end: str | None = None

    def poll(self) -> str | None:
        """Copy and read what is new, within a bound; how it ended, once all of it was read, or as
        much as there is room for."""
        deadline = time.monotonic() + _LONGEST_POLL_S
        grew = self._has_grown()
        while time.monotonic() < deadline:
            copied = self._copy.advance()
            read = self._events.advance(live=self._live and not self._is_behind)
            grew = grew or (bool(copied) and self._live)
            if not copied and not read:
                refusal = self._copy.refusal or self._events.refusal
                self._is_behind = refusal is not None
                self._not_copied.note(refusal, self._copy.position, self._clock())
                return self._at_the_end_of_it(grew)
        self._foreign.end(self._clock(), grew=grew)
        return None

    def end(self) -> None:
        if self._capture is not None:
            self._capture.end()

    def close(self) -> None:
        self._events.close()
        self._copy.close()

    def _has_grown(self) -> bool:
        """Whether the source has since the last time, though nothing of it may be copied."""
        before, (_, self._length) = self._length, self._copy.position
        return self._live and self._length > before > 0

    def _at_the_end_of_it(self, grew: bool) -> str | None:
        self._live = True
        if not self._is_behind:
            has_metrics = self._events.has_metrics
            self._unread.poll(has_metrics=has_metrics, ended=self._end is not None)
        if self._end is None:
            # What it wrote last may have come after the poll: its log is read once more.
            self._end = self._foreign.end(self._clock(), grew=grew)
            return None
        self._events.finish()
        return self._end

    def _warn(self, sentence: str) -> None:
        now = datetime.fromtimestamp(self._clock(), timezone.utc).strftime("%H:%M:%S")
        with self._setup_log.open("a") as log:
            log.write(f"{now} UTC {sentence}\n")
        self._events.say("log_replaced", sentence)


def end_in_log(log: Path, *, in_lines: bool = True) -> str:
    """How a training whose process is gone ended, as far as its log shows.

    `in_lines` is false where the last line says nothing by being unended: a shell's prompt stands
    there in a pane.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _READ_BYTES))
            data = file.read()
    except OSError:
        data = b""
    if not data.strip():
        return "its process is gone, and its log is empty"
    last = b"\n".join(data.splitlines()[-_LAST_LINES:])
    if _TROUBLE.search(last):
        return "its process is gone and the log breaks off in an error"
    if in_lines and not data.endswith((b"\n", b"\r")):
        return "its process is gone and the log breaks off in the middle of a line"
    return "its process ended; the log ends without an error"


class ForeignProcess:
    """The processes of a training, as far as they are known; otherwise its log's silence counts.

    `processes` are those that were found when it was attached to; `successors` finds who has taken
    over from them. It has ended once none of either has been there for two seconds. Where nobody
    was ever seen, it has once the log has been silent for `silence_s`, and for ten times its
    longest silence before.
    """

    def __init__(
        self,
        processes: Sequence[ProcessIdentity],
        successors: Callable[[], Sequence[ProcessIdentity]],
        log: Path,
        silence_s: float,
    ) -> None:
        self._processes = list(processes)
        self._successors = successors
        self._silence_s = silence_s
        self._grew_t = _written_t(log)
        self._longest_gap_s = 0.0
        self._check_due = 0.0
        self._gone_since: float | None = None

    def end(self, now: float, *, grew: bool) -> str | None:
        """How it ended, in words; None while it runs. `now`: Unix seconds."""
        if grew:
            if self._grew_t is not None:
                self._longest_gap_s = max(self._longest_gap_s, now - self._grew_t)
            self._grew_t = now
        if any(map(is_alive, self._processes)) or time.monotonic() < self._check_due:
            return None
        self._check_due = time.monotonic() + _CHECK_EVERY_S
        successors = self._successors()
        if successors:
            self._processes, self._gone_since = list(successors), None
            return None
        return self._gone() if self._processes else self._silent(now)

    def _gone(self) -> str | None:
        self._gone_since = self._gone_since or time.monotonic()
        if time.monotonic() - self._gone_since < _GONE_FOR_S:
            return None
        if all(process.epoch != current_epoch() for process in self._processes):
            return "the machine was restarted"
        return GONE

    def _silent(self, now: float) -> str | None:
        self._grew_t = self._grew_t or now
        silent_s = now - self._grew_t
        if silent_s <= max(self._silence_s, _GAPS * self._longest_gap_s):
            return None
        return f"nothing was written for {spoken_duration(silent_s)}, and nobody has the log open"


def _written_t(log: Path) -> float | None:
    try:
        return log.stat().st_mtime
    except OSError:
        return None
