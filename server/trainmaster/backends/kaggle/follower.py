"""Follow runs at Kaggle: copy the data in their kernels' logs into their mirrors, and record the
ends of their sessions.

Without a supervisor no request is answered. The next session gets the mirrored journal, so its
supervisor sees these lines as history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.kaggle.log_frames import PREFIX, Frame, decode_frame
from trainer_runtime.core.protocol.finding import as_evidence
from trainer_runtime.core.protocol.followed_files import JOURNAL, is_appended, is_replaced
from trainer_runtime.core.protocol.lines import encode
from trainer_runtime.core.protocol.states import ENDED_PLACEMENTS, DesiredState, PlacementState
from trainmaster.backends.follower import Followed, News
from trainmaster.backends.kaggle.client import Kaggle, KernelStatus
from trainmaster.backends.kaggle.outputs import Outputs
from trainmaster.backends.kaggle.placement import KagglePlacement, record_of
from trainmaster.backends.kaggle.sessions import given_up, is_wanted
from trainmaster.errors.errors import CloudError
from trainmaster.store.control.kaggle import KaggleRecords, KaggleSession, SessionState
from trainmaster.store.mirror import PlacementMirror
from trainmaster.store.mirror_writer import MirrorWriter
from trainmaster.store.refusals import UnusableDataError

NO_PROGRESS, UNUSABLE = "no_progress", "unusable"
Lines = Sequence[tuple[str, Mapping[str, Any]]]
# A growing log is read again at once; an idle log and the status at intervals.
_LOG_EVERY_S = 1.0
_STATUS_EVERY_S = 10.0
_QUEUE_EVERY_S = 3.0
_HEARD_EVERY_S = 10.0
_PAGES_AT_A_TIME = 4
# A newly opened log is sent from its beginning: wait this long for new events.
_OPENING_S = 3.0
# Waits for the end of an ended session's log: per read, and in total.
_LOG_END_S, _LOG_SETTLES_S = 5.0, 120.0
_LIVING = ("queued", "running")
_GONE = KernelStatus("error", "the kernel is gone")
_MOST_WORDS = 6
_LONGEST_LINE = 1 << 20


@dataclass(slots=True)
class _Reading:
    """This follower's position in one session's log."""

    lines: LogLines
    log_due_t: float = 0.0
    status_due_t: float = 0.0
    log_ended: bool = False
    opened: bool = False
    status: KernelStatus | None = None
    gap: bool = False

    @property
    def queued(self) -> bool:
        return self.status is not None and self.status.state == "queued"

    @property
    def over(self) -> bool:
        return self.status is not None and self.status.state not in _LIVING

    @property
    def wait_s(self) -> float:
        """How long to wait for the next page of the log."""
        if self.over:
            return _LOG_END_S
        return 0.0 if self.opened else _OPENING_S


class KernelFollower:
    """One pass reads at most four pages of each log, and returns soon if nothing is new."""

    def __init__(
        self,
        kaggle: Kaggle,
        records: KaggleRecords,
        placement_of: Callable[[str], KagglePlacement],
        clock: Callable[[], float],
    ) -> None:
        self._kaggle = kaggle
        self._records = records
        self._placement_of = placement_of
        self._clock = clock
        self._readings: dict[tuple[str, int], _Reading] = {}
        self._settled: dict[str, tuple[int, int, int, bool]] = {}

    async def copy_new(self, placements: Mapping[str, Followed]) -> News:
        news = News()
        for run_id, followed in placements.items():
            try:
                await self._follow_run(run_id, followed, news)
            except OSError:
                news.failed.add(run_id)
            except UnusableDataError as error:
                news.refused[run_id] = (error.code, error.reason)
        return news

    async def close(self) -> None:
        return

    async def _follow_run(self, run_id: str, followed: Followed, news: News) -> None:
        writer = followed.writer()
        session = self._records.newest(run_id)
        if session is not None and session.alive:
            news.changed.setdefault(run_id, set())  # not read to its end before the session's end
            if session.state is not SessionState.INTENDED:
                await self._follow_session(session, writer, news)
            session = self._records.newest(run_id)
        if session is None or not session.alive:
            await self._settle(run_id, session, writer, news)

    async def _settle(
        self, run_id: str, session: KaggleSession | None, writer: MirrorWriter, news: News
    ) -> None:
        """Between sessions; a journal that was evaluated is not folded again."""
        placement = self._placement_of(run_id)
        number = 0 if session is None else session.number
        refused = placement.refusal is not None
        seen = (number, placement.desired.generation, writer.size(JOURNAL), refused)
        if self._settled.get(run_id) == seen:
            return
        lines = due_lines(placement, self._records, writer.mirror)
        if lines:
            write_lines(writer, lines, self._clock())
            news.note(run_id, JOURNAL)
        self._settled[run_id] = seen

    async def _follow_session(
        self, session: KaggleSession, writer: MirrorWriter, news: News
    ) -> None:
        key = (session.run_id, session.number)
        reading = self._readings.get(key)
        if reading is None:
            begin = session.log_index
            reading = self._readings[key] = _Reading(LogLines(begin))
        session = await self._ask_status(session, reading)
        try:
            session = await self._read_log(session, reading, writer, news)
        except CloudError:
            if not (reading.over and self._is_complete(session, reading)):
                raise  # otherwise it is unavailable, and the output replaces it
        session = await self._ask_status(session, reading)  # a complete log may mean an end
        if reading.over and not news.more and self._is_complete(session, reading):
            await self._finish(session, reading, writer, news)
            del self._readings[key]

    def _is_complete(self, session: KaggleSession, reading: _Reading) -> bool:
        """Whether its log has no further events. A killed session has no output, so its log is
        awaited, within limits."""
        waited_s = self._clock() - (session.over_t or 0.0)
        return reading.log_ended or reading.status is _GONE or waited_s > _LOG_SETTLES_S

    async def _read_log(
        self, session: KaggleSession, reading: _Reading, writer: MirrorWriter, news: News
    ) -> KaggleSession:
        now = self._clock()
        due = reading.over or now >= reading.log_due_t
        if reading.log_ended or reading.queued or not due:
            return session
        lines, grown = reading.lines, False
        for _ in range(_PAGES_AT_A_TIME):
            page = await self._kaggle.log(session.ref, lines.index, reading.wait_s)
            reading.opened = True
            for frame in lines.frames(page.events, page.next_index):
                self._take(session.run_id, frame, reading, writer, news)
            grown |= bool(page.events)
            reading.log_ended = page.ended
            if page.ended or not page.events:
                break
        else:
            news.more = True
        reading.log_due_t = now if grown else now + _LOG_EVERY_S
        if reading.gap and not session.read_again:
            reading.lines, reading.gap, reading.log_ended = LogLines(0), False, False
            news.more = True  # a damaged event may be correct in a second read
            return self._records.change(
                session.run_id, session.number, log_index=0, read_again=True
            )
        return self._note_read(session, reading, now) if grown else session

    def _note_read(self, session: KaggleSession, reading: _Reading, now: float) -> KaggleSession:
        if now - (session.heard_t or 0.0) < _HEARD_EVERY_S and not reading.log_ended:
            return session
        index = reading.lines.safe_index
        return self._records.change(session.run_id, session.number, heard_t=now, log_index=index)

    def _take(
        self, run_id: str, frame: Frame, reading: _Reading, writer: MirrorWriter, news: News
    ) -> None:
        """Skip known data, cut overlaps, and leave data after a gap to the output."""
        if frame.whole:
            if is_replaced(frame.file):
                writer.replace(frame.file, frame.data, frame.mtime_ns or None)
                news.note(run_id, frame.file)
            return
        if not is_appended(frame.file):
            return
        size = writer.size(frame.file)
        if frame.at > size:
            reading.gap = True
            return
        data = frame.data[size - frame.at :]
        if data:  # masked on the host already
            writer.append(frame.file, data, final=True)
            news.note(run_id, frame.file)

    async def _ask_status(self, session: KaggleSession, reading: _Reading) -> KaggleSession:
        run_id, number, now = session.run_id, session.number, self._clock()
        if reading.over or (now < reading.status_due_t and not reading.log_ended):
            return session
        reading.status = await self._kaggle.status(session.ref) or _GONE
        reading.status_due_t = now + (_QUEUE_EVERY_S if reading.queued else _STATUS_EVERY_S)
        if session.state is SessionState.PUSHED and not reading.queued:
            session = self._records.change(run_id, number, SessionState.RUNNING, running_t=now)
        if reading.over and session.over_t is None:
            session = self._records.change(run_id, number, over_t=now)
        return session

    async def _finish(
        self,
        session: KaggleSession,
        reading: _Reading,
        writer: MirrorWriter,
        news: News,
    ) -> None:
        """Complete the log's data from the session's output, then record its end."""
        status = reading.status or _GONE
        placement = self._placement_of(session.run_id)
        outputs = Outputs(self._kaggle, session.ref, placement.output)
        kept = None
        if status.state == "complete":
            kept = await outputs.complete(writer, session, news)
        words = [*reading.lines.words] or await self._last_lines(session)
        lines = [word.encode(errors="replace") for word in reversed(words)]
        ended = status.state if status.state != "complete" else "over"
        detail = next(iter(as_evidence(lines)), None) if kept is None else None
        self._records.change(
            session.run_id,
            session.number,
            SessionState.ENDED,
            ended_t=self._clock(),
            outcome=ended if kept is not None or ended != "over" else "no_output",
            detail=": ".join(filter(None, (status.message, detail))) or None,
            output=kept is not None,
            **(kept or {}),
        )

    async def _last_lines(self, session: KaggleSession) -> list[str]:
        """The log's last lines, read again if this process has not read them."""
        index = max(0, session.log_index - 50)
        lines = LogLines(index)
        try:
            page = await self._kaggle.log(session.ref, index, 0.0)
        except CloudError:
            return []
        for _ in lines.frames(page.events, page.next_index):
            continue
        return [*lines.words]


class LogLines:
    """Joins events into lines: an event can be a part of a line, or contain several.

    `safe_index`: all events before it were returned, so another reader can begin there. `words`:
    the last lines that are not frames.
    """

    def __init__(self, index: int) -> None:
        self.index = self.safe_index = index
        self.words: deque[str] = deque(maxlen=_MOST_WORDS)
        self._partial: dict[str, str] = {}

    def frames(self, events: Sequence[tuple[str, str]], next_index: int) -> Iterator[Frame]:
        """The frames that are complete now; `next_index`: after the last event."""
        first = next_index - len(events)
        if first != self.index:  # the log was replaced
            self._partial.clear()
        for index, (stream, data) in enumerate(events, start=first + 1):
            for line in self._whole_lines(stream, data):
                if line.startswith(PREFIX):
                    frame = decode_frame(line)
                    if frame is not None:
                        yield frame
                elif line.strip():
                    self.words.append(line[:400])
            self.index = index
            if not any(self._partial.values()):
                self.safe_index = index
        self.index = next_index

    def _whole_lines(self, stream: str, data: str) -> list[str]:
        *lines, rest = (self._partial.get(stream, "") + data).split("\n")
        self._partial[stream] = rest if len(rest) <= _LONGEST_LINE else ""
        return [line.rstrip("\r") for line in lines]


def due_lines(placement: KagglePlacement, records: KaggleRecords, mirror: PlacementMirror) -> Lines:
    """The lines that a supervisor would write for the newest request; empty if none are due."""
    desired = placement.desired
    record = record_of(mirror)
    is_over = record.state in ENDED_PLACEMENTS
    lines: list[tuple[str, Mapping[str, Any]]] = []
    if desired.state is DesiredState.STOPPED and desired.generation > record.generation:
        lines.append(_stopped(desired.generation, is_over))
    elif is_wanted(record, desired):
        refusal = placement.refusal
        why = given_up(records.of_run(placement.run_id), desired.generation)
        if refusal is not None:
            lines.append(_state(PlacementState.FAILED, UNUSABLE, refusal, desired.generation))
        elif why is not None:
            lines.append(_state(PlacementState.FAILED, NO_PROGRESS, why, desired.generation))
    if lines or (is_over and not record.closed and not is_wanted(record, desired)):
        lines.append(("closed", {}))
    return lines


def write_lines(writer: MirrorWriter, lines: Lines, now: float) -> None:
    """The caller holds the follower lock, and no session of the run is alive."""
    last_seq, size = record_of(writer.mirror).last_seq, writer.size(JOURNAL)
    torn = size > 0 and writer.mirror.read(JOURNAL, size - 1, 1) != b"\n"
    data = b"\n" if torn else b""
    for number, (kind, fields) in enumerate(lines):
        data += encode(last_seq + 1 + number, now, kind, fields)
    writer.append(JOURNAL, data, final=True)


def _stopped(generation: int, is_over: bool) -> tuple[str, Mapping[str, Any]]:
    if is_over:
        return "acknowledged", {"generation": generation}
    return _state(PlacementState.STOPPED, "stopped", None, generation)


def _state(
    state: PlacementState, reason: str, detail: str | None, generation: int
) -> tuple[str, Mapping[str, Any]]:
    line = {"state": state.value, "reason": reason, "detail": detail, "generation": generation}
    return "state", line
