"""Push a run's next session, once: the intent is recorded before the request."""

from __future__ import annotations

import asyncio
import base64
import re
import zlib
from collections.abc import Callable, Sequence

from trainer_runtime.core.kaggle.session_order import CarriedJournal, KernelOrder
from trainer_runtime.core.protocol.followed_files import JOURNAL
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.backends.kaggle.client import Kaggle, KernelPush, Quota
from trainmaster.backends.kaggle.machine_types import machine_of
from trainmaster.backends.kaggle.mounts import Mounts
from trainmaster.backends.kaggle.placement import KagglePlacement, record_of
from trainmaster.backends.kaggle.sessions import (
    DATA_SET,
    QUOTA,
    given_up,
    is_wanted,
    limit_of,
    slug_of,
    with_output,
)
from trainmaster.errors.errors import CloudError
from trainmaster.home.assets import find_assets
from trainmaster.plan.kaggle_script import kernel_script
from trainmaster.settings.settings import KaggleSettings
from trainmaster.store.control.kaggle import (
    KaggleRecords,
    KaggleSession,
    QuotaRecord,
    SessionRequest,
    SessionState,
    Waiting,
)
from trainmaster.store.mirror import PlacementMirror

# A push without a reply may take effect this much later.
_SETTLES_S = 120.0
# How long a used-up quota, or a refused push, is assumed to last.
_QUOTA_HOLDS_S = 600.0
_REFUSAL_HOLDS_S = 300.0
# Contained in every script of Trainmaster.
MARKER = "One session of a Trainmaster run, as a Kaggle kernel."
_BEGINS = re.compile(r"^\S* ?Session ([1-9]\d{0,8}) of run ", re.MULTILINE)


class Pusher:
    """The caller holds the run's advance lock."""

    def __init__(
        self,
        kaggle: Kaggle,
        records: KaggleRecords,
        settings: Callable[[], KaggleSettings],
        clock: Callable[[], float],
    ) -> None:
        self._kaggle = kaggle
        self._records = records
        self._settings = settings
        self._clock = clock

    async def refuse_taken_slug(self, run_id: str) -> None:
        """Raises:
        CloudError: `KERNEL_EXISTS`, another kernel has the run's name.
        """
        if self._records.newest(run_id) is not None:
            return
        ref = f"{await self._kaggle.account()}/{slug_of(run_id)}"
        if await self._kaggle.status(ref) is not None:
            raise CloudError(
                "KERNEL_EXISTS",
                f"The kernel {ref} exists already and does not belong to this run.",
                "Launch again, which uses another name, or delete that kernel at Kaggle.",
            )

    async def push_next(
        self, placement: KagglePlacement, mirror: PlacementMirror, mounts: Mounts | None
    ) -> bool:
        """Push a session if one is due; True if it was pushed.

        Raises:
            CloudError: Kaggle refuses or can't be reached.
        """
        sessions = self._records.of_run(placement.run_id)
        desired = placement.desired
        if sessions and sessions[-1].alive:
            return await self._resolve(placement, mirror, mounts, sessions[-1])
        record = await asyncio.to_thread(record_of, mirror)
        refused = placement.refusal or given_up(sessions, desired.generation)
        if refused or not is_wanted(record, desired):
            return False
        if mounts is None:
            self._records.wait_for(placement.run_id, Waiting(DATA_SET))
            return False
        limit_s = await self._limit_s(placement)
        if limit_s is None:
            return False
        wanted = SessionRequest(
            ref=f"{await self._kaggle.account()}/{slug_of(placement.run_id)}",
            generation=desired.generation,
            limit_s=limit_s,
            newest_attempt=max(mirror.attempts(), default=0),
        )
        session = self._records.intend(placement.run_id, self._clock(), wanted)
        if session is None:
            return False
        await self._push(placement, mirror, mounts, session)
        return True

    async def quota(self) -> Quota:
        """The week's current quota, which is recorded."""
        quota = await self._kaggle.quota()
        self._records.put_quota(
            QuotaRecord(quota.left_s, quota.total_s, quota.refresh_t, self._clock())
        )
        return quota

    async def _limit_s(self, placement: KagglePlacement) -> float | None:
        """The session's time limit; None if none can be pushed now, with the reason recorded."""
        now, waiting = self._clock(), self._records.waiting(placement.run_id)
        if waiting is not None and waiting.reason != QUOTA and now < (waiting.until_t or 0.0):
            return None
        if not placement.wants_gpu:
            return limit_of(self._settings(), None)
        self._refuse_accelerator(placement, now)
        quota_record = self._records.quota()
        is_spent = waiting is not None and waiting.reason == QUOTA
        if not is_spent or quota_record is None or now - quota_record.t > _QUOTA_HOLDS_S:
            quota = await self.quota()
            quota_record = QuotaRecord(quota.left_s, quota.total_s, quota.refresh_t, now)
        limit_s = limit_of(self._settings(), quota_record.left_s)
        if limit_s is None:
            self._records.wait_for(placement.run_id, Waiting(QUOTA, quota_record.refresh_t))
        return limit_s

    def _refuse_accelerator(self, placement: KagglePlacement, now: float) -> None:
        """The settings may have changed since the plan. Raises: CloudError: see `machine_of`."""
        try:
            machine_of(self._settings().accelerator)
        except CloudError as error:
            waiting = Waiting(f"{error.code}: {error.message}", now + _REFUSAL_HOLDS_S)
            self._records.wait_for(placement.run_id, waiting)
            raise

    async def _resolve(
        self,
        placement: KagglePlacement,
        mirror: PlacementMirror,
        mounts: Mounts | None,
        session: KaggleSession,
    ) -> bool:
        """Find out whether a push without a reply arrived; it is sent again only if it certainly
        did not."""
        if session.state is not SessionState.INTENDED:
            return False
        sent_t = session.sent_t
        if sent_t is not None:
            if await self._arrived(session):
                return True
            if self._clock() - sent_t < _SETTLES_S:
                return False
        if placement.desired.state is not DesiredState.RUNNING:
            self._records.withdraw(placement.run_id, session.number)
            return False
        if mounts is None:
            return False
        await self._push(placement, mirror, mounts, session)
        return True

    async def _arrived(self, session: KaggleSession) -> bool:
        """Whether the newest version of the run's kernel is this session; records it if so."""
        ref = session.ref
        kernel = await self._kaggle.kernel(ref, MARKER)
        if kernel is None:
            return False
        before = self._records.of_run(session.run_id)[:-1]
        earlier_version = max((earlier.version or 0 for earlier in before), default=0)
        if kernel.version is None:
            log = await self._kaggle.log(ref, 0, 0.0)
            if session_of_log(log.events) != session.number:
                return False
        elif kernel.version <= earlier_version:
            return False
        state = SessionState.PUSHED
        self._records.change(session.run_id, session.number, state, version=kernel.version)
        return True

    async def _push(
        self,
        placement: KagglePlacement,
        mirror: PlacementMirror,
        mounts: Mounts,
        session: KaggleSession,
    ) -> None:
        last = with_output(self._records.of_run(placement.run_id))
        push = await asyncio.to_thread(self._described, placement, mirror, mounts, session, last)
        now = self._clock()
        self._records.change(placement.run_id, session.number, sent_t=now)
        try:
            pushed = await self._kaggle.push(push)
        except CloudError as error:
            if error.outcome_unknown:
                raise  # it may have taken effect
            if not await self._arrived(session):
                self._records.withdraw(placement.run_id, session.number)
                waiting = Waiting(f"{error.code}: {error.message}", now + _REFUSAL_HOLDS_S)
                self._records.wait_for(placement.run_id, waiting)
            raise
        self._records.change(
            placement.run_id,
            session.number,
            SessionState.PUSHED,
            ref=pushed.ref,
            version=pushed.version,
            url=pushed.url,
            pushed_t=self._clock(),
        )

    def _described(
        self,
        placement: KagglePlacement,
        mirror: PlacementMirror,
        mounts: Mounts,
        session: KaggleSession,
        last: KaggleSession | None,
    ) -> KernelPush:
        """`last`: the newest session with an output."""
        settings = self._settings()
        slug = slug_of(placement.run_id)
        has_bytes = 0 if last is None else last.journal_bytes
        size = mirror.size(JOURNAL)
        order = KernelOrder(
            run_id=placement.run_id,
            number=session.number,
            limit_s=session.limit_s,
            margin_s=settings.margin_minutes * 60,
            previous=None if last is None else slug,
            journal_bytes=size,
            carried=_carried(mirror, has_bytes, size),
            newest_attempt=session.newest_attempt,
            cache=tuple(ref.rpartition("/")[2] for ref in mounts.cache),
            secrets=None if mounts.secrets is None else mounts.secrets.rpartition("/")[2],
        )
        return KernelPush(
            slug=slug,
            title=slug,
            code=kernel_script(order, placement.files(), placement.desired, find_assets()),
            timeout_s=max(1, round(session.limit_s)),
            gpu=placement.wants_gpu,
            internet=settings.internet,
            accelerator=settings.accelerator if placement.wants_gpu else None,
            kernel_sources=() if last is None else (session.ref,),
            dataset_sources=mounts.sources,
        )


def _carried(mirror: PlacementMirror, begin: int, end: int) -> CarriedJournal | None:
    """The part of the journal that no output contains, as a frame."""
    if end <= begin:
        return None
    data = mirror.read(JOURNAL, begin, end - begin)
    return CarriedJournal(begin, base64.b64encode(zlib.compress(data, 6)).decode())


def session_of_log(events: Sequence[tuple[str, str]]) -> int | None:
    """The session number in a log; None if it has none yet."""
    match = _BEGINS.search("".join(data for _, data in events))
    return None if match is None else int(match.group(1))
