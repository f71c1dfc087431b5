"""Following the runs at Kaggle: what their kernels' logs carry, copied into their mirrors, and what
became of their sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from trainer_runtime.core.kaggle.log_frames import Frame
from trainer_runtime.core.protocol.finding import as_evidence
from trainer_runtime.core.protocol.followed_files import JOURNAL, is_appended, is_replaced
from trainer_runtime.core.protocol.states import ENDED_PLACEMENTS
from trainmaster.backends.follower import Followed, News
from trainmaster.backends.kaggle.client import Kaggle, KernelStatus
from trainmaster.backends.kaggle.log_frames import LogLines
from trainmaster.backends.kaggle.offline_supervisor import due_lines, write_lines
from trainmaster.backends.kaggle.outputs import Outputs
from trainmaster.backends.kaggle.placement import Stay, record_of
from trainmaster.store.control.kaggle import KaggleRecords, KaggleSession, SessionState
from trainmaster.store.mirror import MirrorWriter
from trainmaster.words.errors import CloudError

# A log that grows is asked for more at once; one that doesn't, and the status, every so often.
_LOG_EVERY_S = 1.0
_STATUS_EVERY_S = 10.0
_QUEUE_EVERY_S = 3.0
_HEARD_EVERY_S = 10.0
_PAGES_AT_A_TIME = 4
# A log that is opened is told from its beginning: so long its news are waited for.
_OPENING_S = 3.0
# The end of an ended session's log: at a time, and in all.
_LOG_END_S, _LOG_SETTLES_S = 5.0, 120.0
_LIVING = ("queued", "running")
_GONE = KernelStatus("error", "the kernel is gone")


@dataclass(slots=True)
class _Reading:
    """How far one session's log was read by this follower."""

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
    def patience_s(self) -> float:
        """How long the next page of the log is waited for."""
        if self.over:
            return _LOG_END_S
        return 0.0 if self.opened else _OPENING_S


class KernelFollower:
    """`over` is called for a run that is over, before that is noted.

    One look asks for at most four pages of each log, and is over soon where nothing is new."""

    def __init__(
        self,
        kaggle: Kaggle,
        records: KaggleRecords,
        stay: Callable[[str], Stay],
        over: Callable[[str], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._kaggle = kaggle
        self._records = records
        self._stay = stay
        self._over = over
        self._clock = clock
        self._readings: dict[tuple[str, int], _Reading] = {}
        self._settled: dict[str, tuple[int, int, int, bool]] = {}

    async def copy_new(self, placements: Mapping[str, Followed]) -> News:
        news = News()
        for run_id, followed in placements.items():
            try:
                await self._look(run_id, followed, news)
            except OSError:
                news.failed.add(run_id)
        return news

    async def close(self) -> None:
        return

    async def _look(self, run_id: str, followed: Followed, news: News) -> None:
        writer = MirrorWriter(followed.mirror, followed.mask)
        session = self._records.newest(run_id)
        if session is not None and session.alive:
            news.changed.setdefault(run_id, set())  # not read to its end before the session's
            if session.state is not SessionState.INTENDED:
                await self._look_at_session(session, writer, news)
            session = self._records.newest(run_id)
        if session is None or not session.alive:
            await self._settle(run_id, session, writer, news)

    async def _settle(
        self, run_id: str, session: KaggleSession | None, writer: MirrorWriter, news: News
    ) -> None:
        """Between sessions; a journal that has been looked at is not folded again."""
        stay = self._stay(run_id)
        number = 0 if session is None else session.number
        refused = stay.refusal is not None
        seen = (number, stay.desired.generation, writer.size(JOURNAL), refused)
        if self._settled.get(run_id) == seen:
            return
        lines = due_lines(stay, self._records, writer.mirror)
        if lines:
            await self._over(run_id)  # whatever is due ends the run
            write_lines(writer, lines, self._clock())
            news.note(run_id, JOURNAL)
        self._settled[run_id] = seen

    async def _look_at_session(
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
            if not (reading.over and self._has_told_all(session, reading)):
                raise  # else it is not to be had, and the output has to do
        session = await self._ask_status(session, reading)  # a whole log tells of an end
        if reading.over and not news.more and self._has_told_all(session, reading):
            await self._finish(session, reading, writer, news)
            del self._readings[key]

    def _has_told_all(self, session: KaggleSession, reading: _Reading) -> bool:
        """Whether nothing more is to be had of its log: of a killed session there is nothing else,
        so it is waited for, within bounds."""
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
            page = await self._kaggle.log(session.ref, lines.index, reading.patience_s)
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
            news.more = True  # what was damaged on its way may come whole the second time
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
        """Skip what is there, cut off overlaps, and leave what comes behind a gap to the output."""
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
        if data:  # masked over there already: nothing is held back
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
        """Take what the log lacked from the session's output, then note its end."""
        status = reading.status or _GONE
        stay = self._stay(session.run_id)
        outputs = Outputs(self._kaggle, session.ref, stay.output)
        kept = None
        if status.state == "complete":
            kept = await outputs.complete(writer, session, news)
        words = [*reading.lines.words] or await self._last_words(session)
        told = [word.encode(errors="replace") for word in reversed(words)]
        if record_of(writer.mirror).state in ENDED_PLACEMENTS:
            await self._over(session.run_id)
        ended = status.state if status.state != "complete" else "over"
        detail = next(iter(as_evidence(told)), None) if kept is None else None
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

    async def _last_words(self, session: KaggleSession) -> list[str]:
        """Where this process has not read them itself."""
        index = max(0, session.log_index - 50)
        lines = LogLines(index)
        try:
            page = await self._kaggle.log(session.ref, index, 0.0)
        except CloudError:
            return []
        for _ in lines.frames(page.events, page.next_index):
            continue
        return [*lines.words]
