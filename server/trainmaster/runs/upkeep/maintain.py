"""Maintenance of runs: rounds that do what is due, read hosts, and fire alerts.

A tick of the keeper is such a round, over every run and thorough. An MCP server makes small ones
while it lives; a command that waits for a run, for that run while it waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.alerts.send import begin_sending
from trainmaster.backends import KAGGLE
from trainmaster.errors.errors import HostError, TrainmasterError
from trainmaster.runs.upkeep.advance import SupervisedRuns, advance, fire_alerts
from trainmaster.store.failures import as_error
from trainmaster.store.run import Run
from trainmaster.sync.follow import catch_up
from trainmaster.sync.job_ends import awaits_ends, learn_ends
from trainmaster.sync.last_pass import last_pass, record_unreachable
from trainmaster.sync.mirrored_checkpoints import is_mirrored_here
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.checkpoint_mirror import is_given_up

# The longest that a command waits for an unreachable host.
ROUND_S = 10.0
# The longest that a request waits for another process that advances the same run.
_LOCKED_S = 5.0
_WAITING_EVERY_S = 3.0
_READ_EVERY_S, _LOCK_EVERY_S = 0.2, 0.05
_LAST_WORDS_S = 3.0
_SETTLED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Round:
    """The options of a round.

    `thorough`: check that supervisors live. `pauses`: as `advance` has it. `bound_s`: the longest
    that a run's host may take; `lock_s`: the longest wait for another process that advances the
    run. `reads`: read hosts afterwards, unless the caller follows them already. `sends`: start a
    process that sends the messages that are due.
    """

    thorough: bool = False
    pauses: bool = False
    bound_s: float = ROUND_S
    lock_s: float = 0.0
    reads: bool = True
    sends: bool = True


@dataclass(slots=True)
class Maintained:
    """The actions of a round for one run, in words; `error`: what kept it from doing all that was
    due.
    `tried`: False where its host had just proved unreachable for another run."""

    did: list[str] = field(default_factory=list)
    error: TrainmasterError | None = None
    tried: bool = True

    def failed_by(self, error: Exception, workspace: Workspace, subject: str) -> None:
        """Record any error; the first one stays."""
        if self.error is None:
            self.error = as_error(error, workspace.home, subject)


_USUAL = Round()
# A waiting command follows the run's host itself.
_WHILE_WAITING = Round(reads=False)
_AFTER_WAITING = Round(bound_s=3.0, reads=False)


async def maintain(
    workspace: Workspace, runs: Sequence[Run], how: Round = _USUAL
) -> dict[str, Maintained]:
    """Make one round over these runs, all their hosts at once; the outcome by run.

    One that fails in any way stops no other; a host that can't be reached is not asked for its
    other runs.
    """
    hosts: dict[str, list[Run]] = {}
    for run in runs:
        hosts.setdefault(run.host, []).append(run)
    maintained = {run.run_id: Maintained() for run in runs}
    rounds = [
        _maintain_host(workspace, host, there, how, maintained) for host, there in hosts.items()
    ]
    try:
        by_host = await asyncio.gather(*rounds, return_exceptions=True)
    finally:
        if how.sends:
            begin_sending(workspace)
    for (host, there), outcome in zip(hosts.items(), by_host, strict=True):
        if isinstance(outcome, Exception):
            for run in there:
                maintained[run.run_id].failed_by(outcome, workspace, host)
        elif isinstance(outcome, BaseException):
            raise outcome
    return maintained


def due_runs(workspace: Workspace) -> list[Run]:
    """The runs for which something may be due: open ones, and closed ones with work left on this
    machine. The others are settled: they are not examined again.

    So many closed ones are settled at a time; the rest of an old home's wait for the next call.
    """
    due: list[Run] = []
    settled: list[str] = []
    for run_id, is_closed in workspace.control.due_runs():
        if is_closed and len(settled) >= _SETTLED_AT_ONCE:
            continue
        run = workspace.control.run(run_id)
        if not run.closed or _is_perhaps_left(workspace, run):
            due.append(run)
        else:
            settled.append(run_id)
    if settled:
        workspace.control.settle(settled)
    return due


async def deliver(workspace: Workspace, run_id: str) -> bool:
    """Deliver a run's newest request to its host, within bounds; False where it has to wait."""
    run = workspace.control.run(run_id)
    await maintain(workspace, [run], Round(lock_s=_LOCKED_S))
    return workspace.control.desired(run_id)[1]


@asynccontextmanager
async def maintaining(workspace: Workspace, *runs: str) -> AsyncIterator[None]:
    """Inside, what is due for these runs is done every few seconds, and once more at the end: for
    commands that wait, and follow the runs' hosts meanwhile.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    run_ids = [workspace.control.run(run).run_id for run in runs]

    async def once(how: Round) -> None:
        await maintain(workspace, [workspace.control.run(run_id) for run_id in run_ids], how)

    async def repeatedly() -> None:
        while True:
            await once(_WHILE_WAITING)
            await asyncio.sleep(_WAITING_EVERY_S)

    task = asyncio.create_task(repeatedly())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()  # raises what ended it
    await asyncio.gather(*(_read_last_words(workspace, run_id) for run_id in run_ids))
    await once(_AFTER_WAITING)


async def until_closed(workspace: Workspace, run_id: str, bound_s: float = 10.0) -> None:
    """Do what is due for an ended run, and wait until its host has nothing more to write, within
    bounds.

    Raises:
        HostError: the host can't be reached.
    """
    await _until_unlocked(workspace.home.advance_lock(run_id), _LOCKED_S)
    await advance(workspace, run_id)
    deadline = time.monotonic() + bound_s
    while not workspace.control.run(run_id).closed and time.monotonic() < deadline:
        await catch_up(workspace, workspace.control.run(run_id).host)
        await asyncio.sleep(_READ_EVERY_S)


def described(error: TrainmasterError) -> str:
    """An error in one line, for the rows of a tick."""
    return f"{error.code}: {error.message}"


async def _read_last_words(workspace: Workspace, run_id: str) -> None:
    """Of an ended run whose secrets are kept here until it has nothing more to write."""
    deadline = time.monotonic() + _LAST_WORDS_S
    while time.monotonic() < deadline and workspace.home.secrets(run_id).exists():
        view = load_view(workspace, run_id)
        if view.run.closed or not view.ended:
            return
        await catch_up(workspace, view.run.host, _LAST_WORDS_S)
        await asyncio.sleep(_READ_EVERY_S)


def _is_perhaps_left(workspace: Workspace, run: Run) -> bool:
    """As `_is_left`; true also of a run that can't be examined, whose round then says why."""
    try:
        return _is_left(workspace, run)
    except Exception:
        return True


def _is_left(workspace: Workspace, run: Run) -> bool:
    """Whether a closed run has work left: checkpoints to copy here, alerts, secrets,
    the end of its last job."""
    newest = workspace.control.desired(run.run_id)[0].generation
    if workspace.control.alerts.watched_to_end(run.run_id) < newest:
        return True
    if run.cleaned:
        return False
    if awaits_ends(workspace, run):
        return True
    if is_mirrored_here(run) and not is_given_up(load_view(workspace, run.run_id)):
        return True
    if not run.config.secrets:
        return False
    here = workspace.home.secrets(run.run_id).exists()
    at_kaggle = run.host == KAGGLE and workspace.control.kaggle.has_secrets(run.run_id)
    return here or at_kaggle


async def _maintain_host(
    workspace: Workspace,
    host: str,
    runs: Sequence[Run],
    how: Round,
    maintained: dict[str, Maintained],
) -> None:
    away: TrainmasterError | None = None
    began_t = time.time()
    opened = [run for run in runs if not run.closed]
    supervised = SupervisedRuns(workspace, host, [run.run_id for run in opened])
    for run in runs:
        await asyncio.sleep(0)  # the calls of a server come between any two runs
        done = Maintained([], away, False)
        if away is None:
            done = await _advance(workspace, run, how, supervised)
        if done.error is not None and done.error.unanswered:
            away = done.error
        maintained[run.run_id] = done
    if how.reads and opened and (away is None or last_pass(workspace.home, host).t < began_t):
        try:
            await catch_up(workspace, host, how.bound_s)
        except Exception as error:
            maintained[opened[0].run_id].failed_by(error, workspace, host)
    if away is None:
        await learn_ends(workspace, runs, how.bound_s)
    for run in runs:
        await asyncio.sleep(0)
        done = maintained[run.run_id]
        try:
            if not run.closed and done.error is None and away is None:
                done.did += await _next_session(workspace, run, how)
            fire_alerts(workspace, run.run_id)
        except Exception as error:
            done.failed_by(error, workspace, run.run_id)


async def _advance(
    workspace: Workspace, run: Run, how: Round, supervised: SupervisedRuns | None = None
) -> Maintained:
    """`advance` within its bound; what kept it from its end is noted, and given."""
    await _until_unlocked(workspace.home.advance_lock(run.run_id), how.lock_s)
    began_t = time.time()
    try:
        async with asyncio.timeout(how.bound_s):
            options = {"thorough": how.thorough, "pauses": how.pauses}
            did = await advance(workspace, run.run_id, **options, supervised=supervised)
        return Maintained(did)
    except TimeoutError:
        return Maintained(error=_late(workspace, run.host, began_t, how.bound_s))
    except Exception as error:
        return Maintained(error=as_error(error, workspace.home, run.run_id))


def _late(workspace: Workspace, host: str, began_t: float, bound_s: float) -> HostError:
    """The error for a host that was too slow; recorded, unless only its cluster was."""
    asked = workspace.control.slurm.asked(host)
    if asked is not None and asked.error == "SLURM_UNREACHABLE" and asked.t >= began_t:
        message = f"Slurm's controller gave no answer to {host} within {spoken_duration(bound_s)}."
        fix = f"Wait; {command('hosts check', host)} shows whether it answers."
        return HostError(asked.error, message, fix, retryable=True)
    message = f"{host} gave no answer within {spoken_duration(bound_s)}."
    late = HostError("TIMEOUT", message, "Check the link, or the host.", retryable=True)
    record_unreachable(workspace.home, host, late)
    return late


async def _until_unlocked(lock: Path, bound_s: float) -> None:
    deadline = time.monotonic() + bound_s
    while time.monotonic() < deadline and is_locked(lock):
        await asyncio.sleep(_LOCK_EVERY_S)


async def _next_session(workspace: Workspace, run: Run, how: Round) -> list[str]:
    """Do what is due for a run whose session was just found to be over."""
    sessions = load_view(workspace, run.run_id).sessions
    if sessions is None or sessions.alive:
        return []
    done = await _advance(workspace, run, how)
    return [*done.did, *([described(done.error)] if done.error is not None else [])]
