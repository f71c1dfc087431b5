"""Computes when the clock ends an attempt: `limits.max_runtime`, the host's lease, the end of the
session that a place was lent for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import DecodingError
from trainer_runtime.core.lease.lease import LEASE, Lease, stop_t, time_to_stop_s
from trainer_runtime.core.lease.session import Session
from trainer_runtime.core.policy.endings import EndReason
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.journal import AttemptRecord, Record
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.host.files.files import read_fields
from trainer_runtime.host.files.layout import RunFolder


def read_lease(root: Path) -> Lease | None:
    """The lease of the host whose runs are in `root`; None for a host without one."""
    written = read_fields(root / LEASE)
    try:
        return None if written is None else Lease.of(written)
    except DecodingError:
        return None


def read_session(run: RunFolder) -> Session | None:
    """The session that a run's place was lent for; None where it is there for good."""
    written = read_fields(run.session)
    try:
        return None if written is None else Session.of(written)
    except DecodingError:
        return None


class Deadlines:
    """Of one run. Lease and session are read each time: they may end earlier by now."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    def passed(
        self,
        record: Record,
        config: RunConfig,
        desired: Desired,
        attempts: Iterable[Progress],
        now: float,
    ) -> str | None:
        """Why a live attempt is to end now; None if it may continue."""
        if self.lease_over(config, desired, attempts, now):
            return EndReason.LEASE_OVER.value
        limit_s = config.limits.max_runtime_s
        spent_s = sum(attempt.seconds(now) for attempt in record.attempts)
        if limit_s is not None and spent_s > limit_s:
            return EndReason.TIME_LIMIT.value
        return EndReason.SESSION_OVER.value if self.session_over(attempts, now) else None

    def session_over(self, attempts: Iterable[Progress], now: float) -> bool:
        """Whether what is left of the session is needed to save and to keep what is there."""
        session = read_session(self._run)
        if session is None:
            return False
        longest_s = max((progress.longest_save_s for progress in attempts), default=0.0)
        return now >= session.over_t(longest_s)

    def kill_t(self, attempt: AttemptRecord, grace_s: float) -> float:
        """When an attempt is killed that was asked to end and still runs."""
        due_t, session = (attempt.terminated_t or 0.0) + grace_s, read_session(self._run)
        if session is None:
            return due_t
        is_over = attempt.terminated_why == EndReason.SESSION_OVER.value
        return session.kill_t if is_over else min(due_t, session.kill_t)

    def lease_over(
        self,
        config: RunConfig,
        desired: Desired,
        attempts: Iterable[Progress],
        now: float,
    ) -> bool:
        """Whether what is left of the lease is needed to save, to end and to send away."""
        lease = read_lease(self._run.host_root)
        if lease is None:
            return False
        mirror = config.checkpoint.mirror
        return now >= stop_t(lease, time_to_stop_s(desired.grace_s, mirror, attempts))
