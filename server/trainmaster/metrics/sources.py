"""Sources of metrics: a run's points in the database, or a log file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from trainer_runtime.core.diagnosis.pattern_example import LOG_NOT_UNDERSTOOD
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import size_text
from trainer_runtime.core.protocol.followed_files import TRAIN_LOG
from trainmaster.answers.metrics import LogCoverage
from trainmaster.metrics.directions import PRIMARY_KEYS
from trainmaster.metrics.log_pattern import TEACH, share_in_words
from trainmaster.metrics.rank import Group
from trainmaster.metrics.run_series import run_series
from trainmaster.metrics.selection import Selection, bad_argument
from trainmaster.metrics.series_query import AnySeries
from trainmaster.metrics.telemetry import is_telemetry
from trainmaster.store.buckets import Bucket, Row
from trainmaster.store.metrics_store import MOST_KEYS
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

if TYPE_CHECKING:
    from trainmaster.metrics.log_file_metrics import FileMetrics
    from trainmaster.metrics.wanted import Wanted

# Metrics that a training may report later: querying one too early is not an error.
EXPECTED = frozenset(
    """
    loss val_loss perplexity val_perplexity accuracy lr grad_norm clip_fraction noise_scale tokens
    tokens_per_s
    samples_per_s step_time_s data_time_share comm_time_share mfu tflops epoch loss_scale nan_count
    peak_memory_gib gpu_util gpu_mem_gib gpu_power_w gpu_temp_c gpu_clock_mhz gpu_throttle cpu_util
    host_mem_gib disk_free_gib net_mib_s
    """.split()  # noqa: SIM905
)
_MOST_NAMED = 40
_HEAD_BYTES = 1 << 16


class Source(Protocol):
    """One run or file. `name`: as the user gave it."""

    name: str

    def keys(self) -> Sequence[str]: ...

    def series(self, key: str) -> AnySeries: ...

    def is_by_time(self, key: str) -> bool:
        """Whether the key's points have no steps: telemetry."""

    def end_t(self) -> float | None:
        """Now for an active run, else the time of the last data; None if unknown."""

    def notes(self, keys: Sequence[str]) -> list[str]:
        """Remarks for readers of these keys; never text of the log."""

    def coverage(self) -> LogCoverage | None: ...

    def group(self) -> Group | None:
        """With which others its values can be compared; None for a file, which doesn't say."""


class RunSource:
    def __init__(self, workspace: Workspace, view: RunView, name: str) -> None:
        self.name = name
        self._workspace = workspace
        self._view = view
        self._keys = workspace.metrics.keys(view.run.run_id)

    def keys(self) -> Sequence[str]:
        return self._keys

    def series(self, key: str) -> AnySeries:
        return run_series(self._workspace, self._view, key)

    def is_by_time(self, key: str) -> bool:
        all_series = self._workspace.metrics.series(self._view.run.run_id, key)
        return bool(all_series) and all(series.attempt == 0 for series in all_series)

    def end_t(self) -> float | None:
        heard = self._view.record.heartbeat_t
        return heard if self._view.ended and heard is not None else self._view.now

    def notes(self, keys: Sequence[str]) -> list[str]:
        notes = self._of_ranks(keys)
        if self._keys and all(map(is_telemetry, self._keys)):
            notes.append(f"{self.name}: {TEACH}")
        if self._workspace.metrics.leaves_out(self._view.run.run_id):
            notes.append(f"{self.name}: only its first {MOST_KEYS} metrics are stored.")
        return notes

    def _of_ranks(self, keys: Sequence[str]) -> list[str]:
        """Where one rank stands for many: over how many the aggregates are, and their keys."""
        ranks = self._view.progress.ranks if self._view.progress else {}
        aggregated = [key for key in keys if f"{key}/ranks_median" in self._keys]
        if not ranks or not aggregated:
            return []
        key = aggregated[0]
        return [
            f"{self.name}: {', '.join(aggregated)} of one of {ranks['count']} ranks; "
            f"over all of them: {key}/ranks_min, {key}/ranks_median, {key}/ranks_max."
        ]

    def coverage(self) -> LogCoverage | None:
        """What a log without metrics has instead, with a pattern drafted for it."""
        findings = self._view.record.findings.values()
        if not any(f.finding.code == LOG_NOT_UNDERSTOOD and f.closed_t is None for f in findings):
            return None
        mirror = self._workspace.mirror.of(self._view.run.run_id, self._view.run.placement)
        head = mirror.read(f"attempts/{self._view.attempt}/{TRAIN_LOG}", 0, _HEAD_BYTES)
        if not head:
            return None
        from trainmaster.metrics.understood import not_understood  # with it comes the whole parser

        return not_understood(head)

    def group(self) -> Group | None:
        return Group.of(self._view.run)


class FileSource:
    """A log file; `name`: as the caller calls it, `file_metrics`: what was read for `selection`."""

    def __init__(
        self, name: str, file_metrics: FileMetrics, selection: Selection, change: str | None = None
    ) -> None:
        """`change`: of the copy of a run's newest log, read by a pattern, what that changed."""
        self.name = name
        self._change = change
        self._found = file_metrics
        self._selection = selection

    def keys(self) -> Sequence[str]:
        return self._found.keys()

    def series(self, key: str) -> AnySeries:
        if not self._found.wanted.has_range:
            return self._found.series(key)
        return RangedSeries(self._found.series(key), self._found.part(key), self._selection)

    def is_by_time(self, key: str) -> bool:
        return False

    def end_t(self) -> float | None:
        return self._found.newest_t

    def notes(self, keys: Sequence[str]) -> list[str]:
        if not self._found.size_bytes:
            return [f"{self.name} is empty: no metrics were found in it."]
        teach = f" {TEACH}" if self._found.coverage.lines_with_numbers else ""
        notes = [] if self.keys() else [f"{self.name}: no metrics were found in it.{teach}"]
        if self._found.left_out_bytes:
            notes.insert(
                0,
                f"{self.name}: {part_read(self._found)} in the time of a call. "
                f"{command('metrics', in_shell=True)} in a shell reads all of it.",
            )
        if self._found.wanted.pattern is not None:
            notes.append(f"{self.name}: {share_in_words(self._found.coverage)}.")
        if self._change is not None:
            notes.append(
                f"{self.name}: read again from the copy of its newest log; {self._change}."
            )
        if self._found.coverage.within_epochs:
            notes.append(
                f"{self.name}: {self._found.coverage.within_epochs:,} lines name a batch of an "
                "epoch, not how many an epoch has, so that their step is not known: a pattern with "
                "{epoch}, {epoch_step} and {epoch_steps=500} gives it, with the true number for "
                "500."
            )
        if self._found.understood.counted:
            notes.append(
                f"{self.name}: its lines have no step: the steps here are the numbers of its logs, "
                "1, 2, 3, not the optimizer's (multiply them by logging_steps)."
            )
        back = max((self._found.restarts(key) for key in keys), default=0)
        if back:
            notes.append(
                f"{self.name}: steps go back {back} times; points are in order of the log."
            )
        for key in keys:
            whole = self._found.series(key).whole()
            if whole is not None and self._found.series(key).is_thinned:
                notes.append(f"{self.name}: {key} has {whole.n:,} points; neighbours are averaged.")
        if self._found.other_ranks and not any("/ranks_" in key for key in keys):
            notes.append(
                f"{self.name}: rank {self._found.rank} of {self._found.other_ranks + 1}; keys such "
                "as loss/ranks_min, loss/ranks_median, loss/ranks_max are over all of them."
            )
        if self._found.coverage.keys_left_out:
            notes.append(f"{self.name}: only its first {self._found.most_keys:,} metrics are read.")
        return notes

    def coverage(self) -> LogCoverage | None:
        if not self._found.size_bytes:
            return None
        return self._found.understood.answer(self._found.coverage, self._found.other_ranks)

    def group(self) -> Group | None:
        return None


def part_read(metrics: FileMetrics) -> str:
    """How much was read of a log whose end was not."""
    size = size_text(metrics.size_bytes + metrics.left_out_bytes)
    return f"only its first {size_text(metrics.size_bytes)} of {size} were read"


def wanted_of_file(keys: Sequence[str], selection: Selection, pattern: str | None = None) -> Wanted:
    """What has to be kept of a log to answer about these keys."""
    from trainmaster.metrics.wanted import Wanted

    first, last = selection.from_step, selection.to_step
    if selection.at is not None:
        last = selection.at
    clocks = ("loss", "tokens") if selection.axis is not None else ()
    by_time = selection.since_s is not None or selection.axis == "time"
    return Wanted(
        frozenset((*(keys or PRIMARY_KEYS), *clocks)),
        first,
        last,
        by_time or selection.rate == "second",
        pattern,
    )


def wanted_keys(source: Source, keys: Sequence[str]) -> list[str]:
    """The keys of an answer: the requested ones, else those of `PRIMARY_KEYS` that the source has.

    Raises:
        UsageError: `BAD_ARGUMENT` for a key that the source doesn't have and no training reports.
    """
    there = source.keys()
    for key in keys:
        family = key.partition("/")[0]
        if there and key not in there and family not in EXPECTED:
            raise bad_argument(
                "key",
                f"{source.name} has no metric {key!r}.",
                f"It has {', '.join(there[:_MOST_NAMED])}{_more(there)}.",
            )
    return list(keys) or [key for key in PRIMARY_KEYS if key in there]


def _more(keys: Sequence[str]) -> str:
    left = len(keys) - _MOST_NAMED
    return f" and {left} more" if left > 0 else ""


class RangedSeries:
    """`whole`, but for the part that `selection` names: that is `part`, in which a long series is
    kept more finely."""

    def __init__(self, whole: AnySeries, part: AnySeries, selection: Selection) -> None:
        self._whole = whole
        self._part = part
        self._selection = selection

    def between(self, first: int | None, last: int | None) -> AnySeries:
        if (first, last) == (self._selection.from_step, self._selection.to_step):
            return self._part
        return self._whole.between(first, last)

    def since(self, t: float) -> AnySeries:
        return self._whole.since(t)

    def first_x_since(self, t: float) -> int | None:
        return self._whole.first_x_since(t)

    def rows(self) -> list[Row]:
        return self._whole.rows()

    def every(self) -> list[Bucket]:
        return self._whole.every()

    def averaged(self, weight: float) -> list[Row]:
        return self._whole.averaged(weight)

    def cut(self, most: int) -> list[Bucket]:
        return self._whole.cut(most)

    def whole(self) -> Bucket | None:
        return self._whole.whole()

    def first(self) -> Row | None:
        return self._whole.first()

    def until(self, x: int) -> Row | None:
        return (self._part if x == self._selection.at else self._whole).until(x)

    def from_(self, x: int) -> Row | None:
        return self._whole.from_(x)
