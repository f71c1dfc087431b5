"""One pass over a host's open runs after the other: what is new is copied, then ingested."""

from __future__ import annotations

import asyncio
import math
import time

from trainer_runtime.core.decoding import MAX_RECORD_BYTES
from trainer_runtime.core.policy.heartbeat import INGEST_EVERY_S
from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.backends.follower import Followed, Follower, News
from trainmaster.errors.errors import HostError
from trainmaster.store.database import is_of_the_database
from trainmaster.store.quota import run_limit_bytes, total_quota
from trainmaster.store.refusals import Quarantine
from trainmaster.store.reserve import Room
from trainmaster.store.secrets_folder import SecretsFolder
from trainmaster.sync.ingest import Ingest, MirrorGrowth
from trainmaster.sync.last_pass import asked_t, record_pass, record_unreachable
from trainmaster.sync.mask_of_run import MaskOfRun
from trainmaster.sync.rebuild import PIECE_BYTES, begin_rebuild
from trainmaster.sync.workspace import Workspace

# How often a rebuild that was killed is continued.
_REBUILD_EVERY_S = 10.0
# After so long, settings and where each copy ends are read again.
_KEPT_FOR_S = 60.0
# Of so many runs together, a quarter of a second's work of each at most; a whole line fits.
_TAKEN_AT_ONCE, _PORTION_BYTES = 4, MAX_RECORD_BYTES + 4096
_Placement = tuple[str, int]


class Passes:
    """Passes over the open runs of one host, by the process that holds its lock.

    Each pass copies; which ones ingest all that was copied, `awaited` says; see `following`. Runs
    are read again when one is recorded, ends or is quarantined: a pass costs what has changed.
    """

    def __init__(self, workspace: Workspace, host: str, awaited: str | None = None) -> None:
        self._workspace = workspace
        self._host = host
        self._awaited = awaited
        self._ingest = Ingest(workspace.metrics, _PORTION_BYTES)
        # The files that were copied and are not ingested yet, None for any of a placement; and when
        # the last pass began that left nothing.
        self._copied: dict[_Placement, set[str] | None] = {}
        self._ingested_t = 0.0
        # The open runs with their placements and newest requests, what they are followed by, and
        # of which records that was read; None: read them again.
        self._open: dict[str, tuple[int, int]] = {}
        self._wanted: dict[str, Followed] = {}
        self._seen: object = None
        self._followed: dict[_Placement, Followed] = {}
        # By placement, the newest request answered by a host that has nothing more to write.
        self._answered: dict[_Placement, int | None] = {}
        self._room = Room(workspace.home.mirror)
        self._secrets = SecretsFolder(workspace.home)
        self._started: float | None = None
        self._skew_s: float | None = None
        self._passes = 0
        self._limit_bytes = run_limit_bytes(workspace.home)
        self._total = total_quota(workspace.home)
        self._rebuild_begun = -math.inf
        self.has_written = self._lacks_room = False
        # Whether the newest pass left nothing that these alone know of, and the database after it.
        self.is_whole = False
        self._written = self._version()
        self._since = time.monotonic()

    def may_continue(self) -> bool:
        """Whether another call may continue with these, which then answer for it: the newest pass
        left nothing, and what they know of the database is all that is in it."""
        self._started, self._passes = None, 0
        is_recent = time.monotonic() - self._since < _KEPT_FOR_S
        return self.is_whole and is_recent and self._version() == self._written

    def _version(self) -> tuple[object, ...]:
        metrics = self._workspace.metrics
        return metrics, metrics.replay_due, *metrics.version()

    async def make(self, follower: Follower) -> bool:
        """Copy what is new of all open runs, and ingest it; True if there is more right now.

        `has_written` then says whether anything was ingested.

        Raises:
            HostError: the host can't be reached; what came before that is ingested.
        """
        self._started = time.time() if self._started is None else self._started
        self.is_whole = False
        takes_all = self._takes_all()
        self._read_open_runs()
        try:
            news = await follower.copy_new(self._wanted)
        except HostError:
            for run_id in self._wanted:
                self._copied[run_id, self._open[run_id][0]] = None
            await self._take_in(takes_all=True)
            raise
        self._quarantine(news)
        self._note_copied(news)
        ended = await self._take_in(takes_all=takes_all)
        self._close(news)
        self._passes += 1
        self._skew_s = news.skew_s
        if not news.more:  # else something that existed when this began is still unread
            if takes_all and not self._lacks_room:
                home = self._workspace.home
                record_pass(home, self._host, t=self._started, skew_s=self._skew_s)
                self._ingested_t = self._started
            self._started = None
            self.is_whole = not (self._copied or news.failed or news.refused)
            self._written = self._version()
        return news.more or ended

    def failed(self, error: HostError) -> None:
        """Record why the host could not be followed."""
        record_unreachable(self._workspace.home, self._host, error)

    def survived(self, error: Exception) -> None:
        """Record any error of this host or its data, so that it stops no other one.

        Raises:
            StorageError, sqlite3.Error: `error` itself where it is the home's.
        """
        if isinstance(error, HostError):
            self.failed(error)
        elif is_of_the_database(error):
            raise error
        else:
            message = f"What it sends can't be read ({type(error).__name__})."
            self.failed(HostError("HOST_DATA_REFUSED", message, "Check the host.", retryable=True))

    def timed_out(self, bound_s: float) -> None:
        if self._passes == 0:
            message = f"{self._host} gave no answer within {spoken_duration(bound_s)}."
            self.failed(HostError("TIMEOUT", message, "Check the link.", retryable=True))

    def _read_open_runs(self) -> None:
        """Read which runs are open, where the records have changed."""
        held = self._workspace.metrics.refusals.quarantined()
        seen = (self._workspace.control.version(), held)
        if seen == self._seen:
            return
        self._seen = seen
        self._open = {
            run_id: (number, newest)
            for run_id, number, newest in self._workspace.control.open_runs(self._host)
            if (run_id, number) not in held
        }
        self._wanted = {run_id: self._placement(run_id) for run_id in self._open}
        for run_id, (number, _) in self._open.items():
            if (run_id, number) not in self._answered:  # an earlier process may have left some
                self._copied[run_id, number] = None
        self._forget_closed()

    def _forget_closed(self) -> None:
        """Keep what is known of open runs alone, and of those that are not ingested yet."""
        kept = {(run_id, number) for run_id, (number, _) in self._open.items()} | {*self._copied}
        for placement in self._followed.keys() - kept:
            del self._followed[placement]
            self._answered.pop(placement, None)
            self._ingest.forget(*placement)

    def _placement(self, run_id: str) -> Followed:
        home, (number, _) = self._workspace.home, self._open[run_id]
        followed, over = self._followed.get((run_id, number)), self._is_over(run_id, number)
        if followed is None or followed.over != over:
            mirror = followed.mirror if followed else self._workspace.mirror.of(run_id, number)
            mask = followed.mask if followed else MaskOfRun(home, run_id, self._secrets)
            followed = Followed(
                mirror, mask, over, self._limit_bytes, self._room, self._total, self._secrets
            )
            self._followed[run_id, number] = followed
        return followed

    def _is_over(self, run_id: str, number: int) -> bool:
        """Whether the host has answered the newest request, and has nothing more to write."""
        placement, newest_request = self._open.get(run_id, (None, 0))
        answered = self._answered.get((run_id, number))
        return placement == number and answered is not None and answered >= newest_request

    def _quarantine(self, news: News) -> None:
        if not news.refused:
            return
        with self._workspace.metrics.writing():
            for run_id, reason in news.refused.items():
                quarantine = Quarantine(*reason, time.time())
                number, _ = self._open[run_id]
                self._workspace.metrics.refusals.quarantine(run_id, number, quarantine)

    def _takes_all(self) -> bool:
        """Whether this pass ingests everything that was copied."""
        if self._awaited is None or time.time() - self._ingested_t >= INGEST_EVERY_S:
            return True
        return asked_t(self._workspace.home, self._host) > self._ingested_t

    def _note_copied(self, news: News) -> None:
        for run_id, names in news.changed.items():
            copied = self._copied.setdefault((run_id, self._open[run_id][0]), names)
            if copied is not None:
                copied |= names

    async def _take_in(self, *, takes_all: bool) -> bool:
        """Ingest what was copied: of all runs, or of the awaited one; a few at a time, so that the
        calls of a server come between them. What the disk has no room for stays to be ingested.

        True where a run turns out to be over: it can be closed after one more pass.
        """
        grown = [
            MirrorGrowth(*placement, self._followed[placement].mirror, names)
            for placement, names in self._copied.items()
            if takes_all or placement[0] == self._awaited
        ]
        grown = self._not_rebuilt(grown)
        self.has_written, self._lacks_room = bool(grown), False
        has_ended = False
        for begin in range(0, len(grown), _TAKEN_AT_ONCE):
            some = grown[begin : begin + _TAKEN_AT_ONCE]
            left = self._ingest.free(some)
            while left:
                self._lacks_room = self._workspace.unwritable is not None
                if self._lacks_room:
                    self.has_written = begin > 0
                    return has_ended
                left = self._ingest.take_portion(left)
                await asyncio.sleep(0)
            for growth in some:
                has_ended |= self._has_ended(growth)
        return has_ended

    def _has_ended(self, ingested: MirrorGrowth) -> bool:
        """Whether the run turns out to be over, now that what was copied of it is ingested."""
        placement = (ingested.run_id, ingested.placement)
        was_over = self._is_over(*placement)
        self._answered[placement] = self._ingest.closed(*placement)
        del self._copied[placement]
        if self._is_over(*placement) == was_over:
            return False
        self._seen = None
        return not was_over

    def _not_rebuilt(self, grown: list[MirrorGrowth]) -> list[MirrorGrowth]:
        """Without those of which a rebuild of the database has more than a piece to read: they stay
        among what was copied, and no pass lasts as long as a rebuild."""
        if not self._workspace.metrics.replay_due:
            return grown
        current = [growth for growth in grown if self._ingest.lag_bytes(growth) <= PIECE_BYTES]
        if len(current) < len(grown) and time.monotonic() - self._rebuild_begun > _REBUILD_EVERY_S:
            self._rebuild_begun = time.monotonic()
            begin_rebuild(self._workspace.home)
        return current

    def _close(self, news: News) -> None:
        """Close the runs whose hosts have nothing more to write, once everything is ingested."""
        for run_id in [run_id for run_id, followed in self._wanted.items() if followed.over]:
            placement = (run_id, self._open[run_id][0])
            answered = self._answered.get(placement)
            is_kept = run_id in news.failed or run_id in news.refused
            is_copied = run_id not in news.changed and not is_kept and not news.more
            if is_copied and placement not in self._copied and answered is not None:
                self._workspace.control.close_run(run_id, answered)
