"""Detects failures of a run and records them: from series, log, kernel and exit code.

Detection happens once, on the host; the client reads it from the journal. Stateless over the run's
files like the supervisor that owns it: whatever of them is fed from the beginning, or from where
`to_dict` was asked for, leads to the same findings under the same ids, and what the journal holds
already is not recorded again.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.core.diagnosis.detectors import Detectors, Settings
from trainer_runtime.core.diagnosis.log_end import waiting
from trainer_runtime.core.diagnosis.merge_findings import merge_findings
from trainer_runtime.core.diagnosis.signatures import Outcome, find
from trainer_runtime.core.policy.intervention import INTERVENTIONS, STALL
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.journal_lines import (
    AttemptEnded,
    AttemptSignalled,
    AttemptStarting,
    journal_line,
)
from trainer_runtime.core.protocol.lines import ODD_FIELDS, Event, number
from trainer_runtime.core.protocol.masking import Mask
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.secret_file import secret_values
from trainer_runtime.host.processes.quick_commands import answer_of
from trainer_runtime.host.watch.finding_throttle import FindingThrottle, Present, Write
from trainer_runtime.host.watch.log_scan import GrowingLog, MaskedScan

_KMSG = Path("/dev/kmsg")
_MOST_RECORDS = 50_000
_MOST_LINES = 64
_LONGEST_RECORD = 8192  # the kernel's own bound
_DMESG_TIMEOUT_S = 2.0
# Messages are stamped by a clock that a few seconds of doubt do not hurt.
_DOUBT_S = 5.0
_OF_A_GPU = re.compile(rb"NVRM: |\bXid\b|fallen off the bus")
_OF_MEMORY = re.compile(rb"(?i)out of memory|oom-kill:|Killed process")
# The card's own faults, in any process: they name the process that met them, or none.
_HARDWARE = re.compile(rb"\bXid \([^)]*\): (?:48|63|64|74|79|92|94|95)\b")
_RECORD = re.compile(rb"\d+,\d+,(\d+),[^;]*;([^\n]*)")
_DMESG_LINE = re.compile(rb"(?:<\d+>)?\[\s*(\d+\.\d+)\] ([^\n]*)")
_NAMED_PID = re.compile(rb"(?:Killed process |\bpid=)(\d+)")
PLACEMENT = 1  # the one that every run has so far
# What of the journal detectors know: its `started` is the supervisor's own, not the trainer's.
_OF_JOURNAL = frozenset({"attempt_starting", "attempt_ended", "decision", "sample"})
_POLL_EVERY_S = 1.0
_MOST_A_POLL = 4 << 20  # bytes of log: some 20 ms of reading
_MOST_AT_THE_END = 2 << 30
_MOST_OF_SETUP = 16 << 20


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended: `Outcome`'s fields, beside `prepared` (`Exit`) and when it began.

    `pids`: its processes', by which the kernel may have named them. `lost`, `where`, `elsewhere`:
    as `Outcome`'s.
    """

    code: int | None
    signal: int | None
    completed: bool
    prepared: bool
    since_t: float
    pids: tuple[int, ...] = ()
    telemetry: Mapping[str, object] = field(default_factory=dict)
    lost: str | None = None
    where: str | None = None
    elsewhere: bool = False


class Watch:
    """One run's. Feed it events in their recorded order, and `poll` it regularly."""

    def __init__(
        self,
        run: RunFolder,
        write: Write,
        *,
        host_memory_gib: float | None = None,
    ) -> None:
        """`write` is the journal's."""
        self._run = run
        self._host_memory_gib = host_memory_gib
        self._throttle = FindingThrottle(write)
        self._detectors = Detectors(placement=PLACEMENT)
        self._open: list[Finding] = []
        self._of_log: list[Finding] = []
        self._verdict: Finding | None = None
        self._stop_reason: str | None = None
        self._log: GrowingLog
        self._due_t = 0.0
        self._configured: int | None = None
        self._begin(0)

    def to_dict(self) -> dict[str, Any]:
        """What the events so far add up to, as JSON values for `restore`.

        Not in it: the verdict on a stall, which is given again.
        """
        return {
            "attempt": self._attempt,
            "asked": self._stop_reason,
            "ended": self._ended,
            "configured": self._configured,
            "detectors": self._detectors.to_dict(),
            "throttle": self._throttle.to_dict(),
            "log": None if self._ended else self._scan.to_dict(),
        }

    def restore(self, memory: Mapping[str, Any]) -> None:
        """Continue from what `to_dict` returned.

        Raises:
            ValueError, KeyError, TypeError: another version has written it.
        """
        self._begin(memory["attempt"])
        self._stop_reason, self._ended = memory["asked"], memory["ended"]
        self._detectors = Detectors.from_dict(memory["detectors"], self._detectors.settings)
        self._throttle.restore(memory["throttle"])
        if memory.get("log") is not None:
            self._scan = MaskedScan.from_dict(self._mask, memory["log"])
            self._log = GrowingLog(self._run.attempt(self._attempt).train_log, self._scan.begin)
            self._has_news = True
        if memory["configured"] is not None:
            self._configure(memory["configured"])

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the newest attempt, the first cause first."""
        return tuple(self._open)

    @property
    def wanted_checkpoints(self) -> frozenset[int]:
        """The steps of the checkpoints that a rewind of the newest attempt may need."""
        return self._detectors.wanted_checkpoints

    def feed_event(self, attempt: int, event: Event) -> None:
        """Take in an event: of an attempt's trainer, or (`attempt` 0) of the journal."""
        try:
            self._hear(attempt, event)
            if attempt or event.kind in _OF_JOURNAL:
                self._detectors.feed(event, attempt or None)
        except ODD_FIELDS:
            return

    def _hear(self, attempt: int, event: Event) -> None:
        if attempt == 0:
            self._throttle.hear(event)
            line = journal_line(event)
            if isinstance(line, AttemptStarting):
                self._begin(line.attempt)
            elif isinstance(line, AttemptSignalled):
                self._stop_reason = _stop_reason(line.why)
            elif isinstance(line, AttemptEnded):
                self._ended = True
        elif event.kind == "started":
            self._configure(attempt)

    def feed_log(self, attempt: int, data: bytes) -> None:
        """Take in the next bytes of an attempt's log."""
        if attempt != self._attempt:
            return
        self._scan.feed(data)
        self._has_news = True

    def sample(self, t: float, values: Mapping[str, object]) -> None:
        """Take in a telemetry sample that the journal does not hold."""
        self._detectors.sample(t, values)

    def poll(self, now: float) -> None:
        """Read more of the log and record what is new, once a second at most."""
        if self._ended or now < self._due_t <= now + _POLL_EVERY_S:
            return
        self._due_t = now + _POLL_EVERY_S
        self._read_log(_MOST_A_POLL)
        if self._has_news:
            self._has_news = False
            self._find_in_log(Outcome(running=True, terminated_why=self._stop_reason))
        self._record(now)

    def end(self, ended: Ended, now: float) -> None:
        """The attempt is over: find the cause, and record all its findings."""
        path = self._run.attempt(self._attempt)
        if ended.prepared:
            self._log.skip_to_last(_MOST_AT_THE_END)
            self._read_log(None)
        else:
            self._log, self._scan = GrowingLog(path.setup_log), MaskedScan(self._mask)
            self._log.skip_to_last(_MOST_OF_SETUP)
            self._read_log(None)
        self._configure(self._attempt)
        self._find_in_log(self._outcome(ended, now), over=True, patched=ended.prepared)
        self._record(now, settle=True)

    def set_verdict(self, finding: Finding | None, now: float) -> None:
        """Record the present verdict on a stall of the attempt, if any; what it was
        found to be before is over, and all of it is with the stall."""
        others = [
            open_finding
            for open_finding in self._open
            if self._verdict is None or open_finding is not self._verdict
        ]
        self._verdict = finding
        self._open = others if finding is None else [*others, finding]
        self._throttle.record_while(STALL, self._attempt, finding, now)

    def _begin(self, attempt: int) -> None:
        self._attempt, self._ended = attempt, attempt == 0
        self._stop_reason = None
        self._mask = Mask(secret_values(self._run).values())
        self._scan = MaskedScan(self._mask)
        self._log = GrowingLog(self._run.attempt(attempt).train_log)
        self._of_log, self._has_news, self._verdict = [], False, None
        self._due_t = 0.0

    def _configure(self, attempt: int) -> None:
        """Detect and propose by the attempt's own configuration from now on."""
        config = read_json(self._run.attempt(attempt).config)
        self._configured = attempt
        if config is None or config == self._detectors.settings.config:
            return
        gpu_memory_gib = number((config.get("compute") or {}).get("gpu_memory_gib"))
        settings = Settings.from_config(
            config, host_memory_gib=self._host_memory_gib, gpu_memory_gib=gpu_memory_gib
        )
        self._detectors = Detectors.from_dict(self._detectors.to_dict(), settings)

    def _read_log(self, most_bytes: int | None) -> None:
        if self._log.has_restarted():
            self._scan = MaskedScan(self._mask)
        for piece in self._log.pieces(most_bytes):
            self.feed_log(self._attempt, piece)

    def _find_in_log(self, outcome: Outcome, *, over: bool = False, patched: bool = True) -> None:
        """`patched`: with patches; what a training takes changes nothing in its preparation."""
        result = self._scan.result(ended=over)
        self._of_log = find(
            result,
            outcome,
            placement=PLACEMENT,
            attempt=self._attempt,
            config=(self._detectors.settings.config or None) if patched else None,
        )
        if not any(finding.severity == "critical" for finding in self._of_log):
            retries = waiting(result.tail, PLACEMENT, self._attempt)
            self._of_log += [retries] if retries is not None else []

    def _outcome(self, ended: Ended, now: float) -> Outcome:
        telemetry = {
            key: value for key, raw in ended.telemetry.items() if (value := number(raw)) is not None
        }
        if self._host_memory_gib is not None:
            telemetry["host_mem_total_gib"] = self._host_memory_gib
        return Outcome(
            code=ended.code,
            signal=ended.signal,
            terminated_why=self._stop_reason,
            completed=ended.completed,
            lost=ended.lost,
            where=ended.where,
            elsewhere=ended.elsewhere,
            dmesg=() if ended.completed else kernel_lines(ended.since_t, now, ended.pids),
            telemetry=telemetry,
        )

    def _record(self, now: float, *, settle: bool = False) -> None:
        present = self._present()
        self._open = [candidate.finding for candidate in present if candidate.is_open]
        if all(finding.code != STALL for finding in self._open):
            self._verdict = None
        self._open += [self._verdict] if self._verdict is not None else []
        self._throttle.record(self._attempt, present, now, settle=settle)
        if self._log.is_read:  # else findings of an earlier supervisor may come later in it
            self._throttle.close_others(self._attempt, present)

    def _present(self) -> list[Present]:
        """What is found of this attempt: open ones merged, those that are over behind them."""
        mine = [entry for entry in self._detectors.entries() if entry.attempt == self._attempt]
        open_ones = [self._detectors.finding_of(entry) for entry in mine if entry.closed_at is None]
        findings = merge_findings(open_ones, self._of_log, self._throttle.open_ids(self._attempt))
        named = {entry.id for entry in findings}
        over = [
            Present(self._detectors.finding_of(entry), is_open=False)
            for entry in mine
            if entry.closed_at is not None
            and not self._throttle.has_recorded_end(entry.id(PLACEMENT))
            and entry.id(PLACEMENT) not in named
        ]
        return [*map(Present, findings), *over]


def _stop_reason(why: str) -> str:
    """What an attempt was ended for, as `Outcome` knows it: our own reasons appear as a stop."""
    return "stopped" if why in INTERVENTIONS else why


def kernel_lines(since_t: float, now: float, pids: Collection[int] = ()) -> tuple[bytes, ...]:
    """The newest lines on failures since `since_t` (Unix seconds); () without permission to read.

    Other processes of the machine are killed for memory, too, and misuse their GPUs: such lines
    count where they name one of `pids`.
    """
    since_s = time.clock_gettime(time.CLOCK_MONOTONIC) - (now - since_t) - _DOUBT_S
    try:
        return concerning(_read(_KMSG), since_s, pids)
    except OSError:
        return concerning(_ask_dmesg(), since_s, pids)


def concerning(
    messages: Iterable[tuple[float, bytes]], since_s: float, pids: Collection[int]
) -> tuple[bytes, ...]:
    """Of (seconds since boot, line) the newest 64 that concern these processes or the cards."""
    lines = (line for at, line in messages if at >= since_s and _concerns(line, pids))
    return tuple(deque(lines, maxlen=_MOST_LINES))


def _concerns(line: bytes, pids: Collection[int]) -> bool:
    named = [int(pid) for pid in _NAMED_PID.findall(line)]
    if _OF_A_GPU.search(line):
        return not named or any(pid in pids for pid in named) or bool(_HARDWARE.search(line))
    return bool(_OF_MEMORY.search(line)) and any(pid in pids for pid in named)


def _read(kmsg: Path) -> Iterator[tuple[float, bytes]]:
    """Every record that the kernel holds, with its time in seconds since boot.

    Raises:
        OSError: it can't be read.
    """
    descriptor = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(descriptor, _LONGEST_RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # it was overwritten before it was read
            if not record:
                return
            match = _RECORD.match(record)
            if match is not None:
                yield int(match[1]) / 1e6, match[2]
    finally:
        os.close(descriptor)


def _ask_dmesg() -> Iterator[tuple[float, bytes]]:
    done = answer_of(["dmesg"], within_s=_DMESG_TIMEOUT_S)
    for line in () if done is None else done.stdout.splitlines()[-_MOST_RECORDS:]:
        match = _DMESG_LINE.match(line)
        if match is not None:
            yield float(match[1]), match[2]
