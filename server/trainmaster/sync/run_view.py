"""One run: the request, the records of its host, and the state that follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainer_runtime.core.checkpoints.checkpoint_index import CheckpointIndex, build_index
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.pattern_example import LOG_NOT_UNDERSTOOD
from trainer_runtime.core.policy.heartbeat import LOST_AFTER_S
from trainer_runtime.core.policy.intervention import SESSION_OVER
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.followed_files import JOURNAL
from trainer_runtime.core.protocol.journal import AttemptRecord, FoundRecord, Record
from trainer_runtime.core.protocol.lineage import Lineage, lineage_of
from trainer_runtime.core.protocol.lines import ODD_FIELDS
from trainer_runtime.core.protocol.progress import Progress, newest_progress
from trainer_runtime.core.protocol.states import ENDED_RUNS, RunState, run_state
from trainer_runtime.core.protocol.text import code_word, shown
from trainmaster.backends import KAGGLE, NAMES, SLURM
from trainmaster.errors.errors import HostError, StateError
from trainmaster.store.control.run_list import End
from trainmaster.store.refusals import HOST_DATA_REFUSED, NOTHING_REFUSED, Quarantine, Refused
from trainmaster.store.run import Run
from trainmaster.sync.last_pass import LastPass, last_pass
from trainmaster.sync.preparation import Preparation, preparation_of
from trainmaster.sync.rebuild_state import incomplete
from trainmaster.sync.transfer_progress import TransferProgress, read_progress
from trainmaster.sync.workspace import Workspace

if TYPE_CHECKING:
    from trainmaster.backends.sessions import Sessions
    from trainmaster.store.control.instances import RentedInstance

# Clocks may differ by so much without a time being taken for one of the future.
_MOST_AHEAD_S = 300.0
# `EndReason.EXITED_EARLY` of core/policy/recovery.py.
_EXITED_EARLY = "exited_early"


@dataclass(frozen=True)  # without slots: what follows from it is computed once, when it is needed
class RunView:
    """`now` is by the clock of the run's host, which is `skew_s` ahead of this machine's, and so is
    `last_read_t`: when the host was last read, with or without success; None counts as now.
    `delivered`: whether the newest request has reached the host. `link_error`: code and message of
    the last failure to reach the host; None after a success. `transfer`: the transfers of an open
    run. `preparation`: that of an attempt whose trainer has not started yet. `host_is_gone`: the
    host was a rented instance, and its provider no longer lists it. `sessions`: those of a run
    at a place that lends time. `refused`: what of its host's data was not taken in. `incomplete`:
    why its records may lack something."""

    run: Run
    desired: Desired
    record: Record
    attempts: Sequence[Progress]
    now: float
    last_read_t: float | None = None
    delivered: bool = True
    link_error: tuple[str, str] | None = None
    transfer: TransferProgress | None = None
    preparation: Preparation | None = None
    host_is_gone: bool = False
    sessions: Sessions | None = None
    refused: Refused = NOTHING_REFUSED
    incomplete: str | None = None
    skew_s: float = 0.0

    @cached_property
    def state(self) -> RunState:
        recorded = self._recorded_state
        if self.sessions is None:
            return recorded
        return self.sessions.state(recorded, self.desired, self.record.heartbeat_t)

    def refuse_unreachable(self) -> None:
        """Raises: HostError: that with which the host could not be reached just now."""
        if self.link_error is not None:
            code, message = self.link_error
            fix = f"{command('hosts check', self.run.host)} shows what is wrong with it."
            raise HostError(code, message, fix, retryable=True)

    @property
    def _recorded_state(self) -> RunState:
        return run_state(
            self.record.state if self.record.heartbeat_t is not None else None,
            self.desired.state,
            request_pending=self.request_pending,
            silent_for_s=self.silent_for_s,
            lost_after_s=LOST_AFTER_S,
        )

    @cached_property
    def known_until(self) -> float:
        """The last time the host was read, by its clock: later silence proves nothing."""
        return self.now if self.last_read_t is None else min(self.now, self.last_read_t)

    @cached_property
    def silent_for_s(self) -> float:
        """Seconds between the last heartbeat and the last read of the host; zero between the
        sessions of a run."""
        if self.host_is_gone:
            return float("inf")
        heard = self.record.heartbeat_t
        if heard is None or (self.sessions is not None and not self.sessions.runs):
            return 0.0
        if self.sessions is not None:
            heard = max(heard, self.sessions.heard_t)
        return max(0.0, self.known_until - heard)

    @cached_property
    def reason(self) -> str | None:
        """Why the run is in its state, or the error of a lost link."""
        if self.sessions is not None and self.state is RunState.QUEUED:
            return self.sessions.reason
        if self._is_out_of_contact and self.link_error is not None:
            return ": ".join(self.link_error)
        if self.record.reason is None or self.state is RunState.RUNNING:
            return None
        return code_word(self.record.reason)

    @property
    def detail(self) -> str | None:
        """What the host says of its reason; anybody may have written it."""
        if self.sessions is not None and self.state is RunState.QUEUED:
            return self.sessions.detail
        if self._is_out_of_contact and self.link_error is not None:
            return None
        if self.reason is None or self.record.detail is None:
            return None
        return shown(self.record.detail.encode(errors="replace"))

    @property
    def _is_out_of_contact(self) -> bool:
        silent = self.record.heartbeat_t is None or self.state is RunState.LOST
        return silent and not self.ended

    @property
    def unreachable(self) -> str | None:
        """Why the view may be out of date: its host could not be reached the last time."""
        return self.link_error[1] if self.link_error and not self.run.closed else None

    @property
    def request_pending(self) -> bool:
        """Whether the host has yet to answer the newest request."""
        return self.desired.generation > self.record.generation

    @cached_property
    def ended(self) -> bool:
        return self.state in ENDED_RUNS

    @cached_property
    def attempt(self) -> int:
        """The newest attempt's number, 0 before the first."""
        current = self.record.current
        return current.number if current else 0

    @cached_property
    def unprepared(self) -> AttemptRecord | None:
        """The last attempt to end, where it failed before its trainer started and no trainer has
        started since."""
        for attempt in reversed(self.record.attempts):
            if attempt.running_t is not None:
                return None
            if attempt.ended_t is not None:
                return attempt if attempt.code or attempt.signal else None
        return None

    @cached_property
    def ended_early(self) -> AttemptRecord | None:
        """The last attempt to end, where its trainer did so by itself before the last step, and
        nobody has requested anything else since."""
        for attempt in reversed(self.record.attempts):
            if attempt.generation != self.desired.generation:
                return None
            if attempt.ended_t is not None:
                return attempt if attempt.reason == _EXITED_EARLY else None
        return None

    @property
    def awaited_attempt(self) -> int:
        """The attempt whose transfers are served; each session counts as one where files travel."""
        if self.sessions is not None and self.sessions.files_travel:
            return self.sessions.data_generation(self.desired)
        return max(1, self.attempt)

    @cached_property
    def progress(self) -> Progress | None:
        """That of the newest attempt that started training."""
        return newest_progress(self.attempts)

    @property
    def step(self) -> int:
        return self.progress.step if self.progress else 0

    @property
    def target_step(self) -> int | None:
        """The last step of the training; None where it is unknown."""
        progress = self.progress
        if progress is not None and progress.target_step is not None:
            return progress.target_step
        return self.run.config.steps or None

    @cached_property
    def index(self) -> CheckpointIndex:
        return build_index(self.attempts, self.run.checkpoint.metric)

    @cached_property
    def lineage(self) -> Lineage:
        return lineage_of(self.attempts)

    @cached_property
    def started_at(self) -> dict[int, int]:
        """The step that each attempt started from."""
        return {
            progress.attempt: progress.started_at_step
            for progress in self.attempts
            if progress.started_at_step is not None
        }


def ended_instance(workspace: Workspace, host: str) -> RentedInstance | None:
    """The rented instance that a host was, where it has ended."""
    if host in NAMES or workspace.control.host(host) is not None:
        return None
    instance = workspace.control.instances.find(host)
    return None if instance is None or instance.open else instance


def load_view(workspace: Workspace, run: str, lasts: dict[str, LastPass] | None = None) -> RunView:
    """The run of this id or name, from the database. `lasts`: the newest passes over hosts that
    were read for other views at this time, and this one's, which is added.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    run_record = workspace.control.run(run)
    lasts = {} if lasts is None else lasts
    if run_record.host not in lasts:  # first: what it brought is in what is read next
        lasts[run_record.host] = last_pass(workspace.home, run_record.host)
    last = lasts[run_record.host]
    lacking = incomplete(workspace)  # before the records, which may be complete a moment later
    refused = workspace.metrics.refusals.of(run_record.run_id, run_record.placement)
    try:
        record, attempts = _folded(workspace, run_record)
    except (*ODD_FIELDS, RecursionError):
        record, attempts, refused = Record(), [], _undecodable(refused)
    now = time.time() + last.skew_s
    read_t = last.t if refused.quarantine is None else refused.quarantine.t
    desired, delivered = workspace.control.desired(run_record.run_id)
    return RunView(
        run_record,
        desired,
        _heard_by(now, record, lambda: _grown_t(workspace, run_record) + last.skew_s),
        attempts,
        now,
        last_read_t=read_t + last.skew_s,
        delivered=delivered,
        link_error=_removed(workspace, run_record.host) or last.error,
        transfer=None if run_record.cleaned else read_progress(workspace.home, run_record.run_id),
        host_is_gone=ended_instance(workspace, run_record.host) is not None,
        preparation=preparation_of(
            record, workspace.mirror.of(run_record.run_id, run_record.placement)
        ),
        sessions=_sessions(workspace, run_record, record, now, last.skew_s),
        refused=refused,
        incomplete=lacking,
        skew_s=last.skew_s,
    )


def end_of(view: RunView) -> End | None:
    """How the run ended; None while that may change, or its records don't say."""
    if not view.run.closed or not view.ended or view.refused.quarantine is not None:
        return None
    if view.incomplete is not None:
        return None
    return End(view.state.value, view.step, view.target_step)


def _folded(workspace: Workspace, run: Run) -> tuple[Record, list[Progress]]:
    record, attempts = Record(), []
    for attempt, body in workspace.metrics.folds(run.run_id, run.placement):
        if attempt == 0:
            record = Record.from_dict(body["record"])
        else:
            attempts.append(Progress.from_dict(body["progress"]))
            taught = body.get("findings")
            if taught is not None:
                _add_taught(record, attempts[-1], taught)
    return record, attempts


def _add_taught(record: Record, attempt: Progress, findings: Sequence[dict[str, Any]]) -> None:
    """Add what an attempt's log shows since the user taught it, so that it is understood."""
    t = attempt.last_event_t or 0.0
    for item in record.findings.values():
        if item.finding.code == LOG_NOT_UNDERSTOOD and item.attempt == attempt.attempt:
            item.closed_t = item.closed_t or t
    for finding in (Finding.of(Fields(body, "finding")) for body in findings):
        record.findings.setdefault(finding.id, FoundRecord(attempt.attempt, t, finding, news_t=t))


def _heard_by(now: float, record: Record, grown_t: Callable[[], float]) -> Record:
    """The record without times of the future, by which a run would never fall silent; `grown_t`:
    when the journal was last seen to grow."""
    heard_t, entered_t = record.heartbeat_t, record.state_t
    if max(heard_t or 0.0, entered_t or 0.0) <= now + _MOST_AHEAD_S:
        return record
    latest = min(now, grown_t())
    return replace(
        record,
        heartbeat_t=None if heard_t is None else min(heard_t, latest),
        state_t=None if entered_t is None else min(entered_t, latest),
    )


def _grown_t(workspace: Workspace, run: Run) -> float:
    mirror = workspace.mirror.of(run.run_id, run.placement)
    try:
        return mirror.path(JOURNAL).stat().st_mtime
    except OSError:
        return run.created_t


def _undecodable(refused: Refused) -> Refused:
    quarantine = Quarantine(HOST_DATA_REFUSED, "its state can't be decoded", time.time())
    return Refused(refused.lines, refused.quarantine or quarantine)


def refuse_unless_ended(view: RunView) -> None:
    """Raises:
    StateError: `RUN_IS_RUNNING`.
    """
    if view.state is RunState.STOPPING:
        raise StateError(
            "RUN_IS_RUNNING",
            f"Run {view.run.run_id} is stopping.",
            "Wait for its end: "
            f"{command('wait', view.run.run_id, '--until', 'end', '--timeout', '600')}.",
            retryable=True,
        )
    if not view.ended:
        raise still_running(view.run.run_id, view.state.value)


def still_running(run_id: str, state: str) -> StateError:
    """The error for a call that needs an ended run."""
    return StateError(
        "RUN_IS_RUNNING",
        f"Run {run_id} is {state}.",
        f"Stop it first ({command('stop', run_id)}), or wait for its end.",
    )


def _removed(workspace: Workspace, host: str) -> tuple[str, str] | None:
    if host in NAMES or workspace.control.host(host) is not None:
        return None
    instance = ended_instance(workspace, host)
    if instance is not None:
        return (
            "HOST_UNKNOWN",
            f"The rented instance {host} has ended ({instance.end_reason}).",
        )
    return "HOST_UNKNOWN", f"{host} is not among the hosts on record any more."


def _sessions(
    workspace: Workspace, run: Run, record: Record, now: float, skew_s: float
) -> Sessions | None:
    if run.host == KAGGLE:
        from trainmaster.backends.kaggle.run_status import Standing  # most runs are elsewhere

        kernels = workspace.control.kaggle
        return Standing(kernels.newest(run.run_id), kernels.waiting(run.run_id))
    host = workspace.control.host(run.host)
    if host is None or host.launcher != SLURM:
        return None
    from trainmaster.backends.slurm.run_status import SlurmSessions  # most runs are elsewhere

    slurm = workspace.control.slurm
    job, asked = slurm.job(run.run_id), slurm.asked(run.host)
    return SlurmSessions(
        job,
        asked,
        record.heartbeat_t,
        now,
        chain=lambda: slurm.jobs(run.run_id),
        refused=lambda: slurm.refusal(run.run_id),
        skew_s=skew_s,
        over_t=record.state_t if record.reason == SESSION_OVER else None,
        gpus=run.config.compute.gpus or 0,
        array=(run.document.get("slurm") or {}).get("array", {}).get("name"),
    )
