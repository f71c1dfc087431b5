"""Reports once in an attempt that no metrics were read from its log."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.detectors.unmatched import LOG
from trainer_runtime.core.diagnosis.parse.coverage import frequent_lines
from trainer_runtime.core.diagnosis.parse.pattern_draft import drafted
from trainer_runtime.host.attach.log_events import LogEvents

# Lines with numbers, of which none was a metric; fewer where the program has ended.
_MANY_LINES, _FEW_LINES = 100, 10
_MOST_SAMPLES = 3
_HEAD_BYTES = 1 << 16


class UnreadLog:
    """One attempt's. `pattern`: the shape of its lines, where it was taught."""

    def __init__(self, events: LogEvents, pattern: str | None) -> None:
        self._events = events
        self._pattern = pattern
        self._is_reported = False

    def poll(self, *, has_metrics: bool, ended: bool) -> None:
        if not self._is_reported and self._is_unread(has_metrics, ended):
            self._is_reported = True
            self._report()

    def _is_unread(self, has_metrics: bool, ended: bool) -> bool:
        coverage = self._events.coverage
        if coverage.lines_with_numbers < (_FEW_LINES if ended else _MANY_LINES):
            return False
        return not coverage.lines_taught if self._pattern else not has_metrics

    def _report(self) -> None:
        coverage = self._events.coverage
        with self._events.path.open("rb") as file:
            samples = coverage.samples or frequent_lines(file.read(_HEAD_BYTES))
        draft = drafted(samples)
        pattern = {} if self._pattern is None else {"pattern": self._pattern}
        pattern |= {} if draft is None else {"draft": draft}
        lines = coverage.lines_with_numbers
        self._events.decide(LOG, lines=lines, samples=samples[:_MOST_SAMPLES], **pattern)
