"""The next step for a run, from a closed catalogue: never text from the run itself."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.policy.heartbeat import UNCONFIRMED_AFTER_S
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.figures import in_utc
from trainer_runtime.core.protocol.states import RunState
from trainer_runtime.core.status.eta import step_is_overdue
from trainmaster.backends import DEBUG, KAGGLE
from trainmaster.backends.sessions import Sessions
from trainmaster.runs.diagnosis.diagnose_run import FoundOfRun
from trainmaster.runs.status.node_states import can_continue_without_first, members_of
from trainmaster.store.run import Run
from trainmaster.sync.rebuild_state import NOT_CURRENT
from trainmaster.sync.run_view import RunView

_UNUSABLE = "unusable"
BY_REASON = {
    _UNUSABLE: f"Fix what can't be used, then {command('launch', 'SPEC')}.",
    "failed_before_first_step": f"Read {command('logs', '{run}')}, fix the cause, then "
    f"{command('resume', '{run}')}.",
    "max_restarts": f"Read {command('logs', '{run}')}; after fixing the cause, "
    f"{command('resume', '{run}')}.",
    "no_progress": f"Read {command('logs', '{run}')}, and Kaggle's page of the kernel or "
    "logs/job.out in the run's folder; after fixing the cause, "
    f"{command('resume', '{run}')}.",
    "folder_missing": "Add the host again with a root that its compute nodes share, "
    f"{command('hosts remove', '{host}')} and "
    f"{command('hosts add', '{host}', 'ADDRESS', '--launcher', 'slurm', '--root', 'DIR')}"
    ", and launch again.",
    "nodes_unreachable": "Have those who run the cluster let TCP through between its nodes, then "
    f"{command('resume', '{run}')}; or launch it again on one node.",
    "nodes_differ": "Ask for nodes that are alike, "
    f"{command('hosts set', '{host}', '--constraint', 'FEATURES')}, and "
    f"{command('resume', '{run}', '--host', '{host}')}; or name by `environment: "
    "{{python: PATH}}` an interpreter that they share, and launch again.",
    "module_missing": "Name modules that its compute nodes have, "
    f"{command('hosts set', '{host}', '--module', 'NAME')}, and "
    f"{command('resume', '{run}', '--host', '{host}')}.",
    "nan": f"Lower the learning rate: {command('resume', '{run}', '--set', 'optimizer.lr=...')}.",
}
BY_REASON_OF_STOP = {
    "time_limit": (
        f"Its time is used up: {command('resume', '{run}', '--set', 'limits.max_runtime=12h')}."
    ),
    "lease_over": f"Its instance's lease is over: {command('offers')} lists others to provision.",
}
_NOT_DELIVERED = f"The request is not delivered yet: {command('tick')} tries again."
# The host has stopped for a decision that the policy leaves to the operator.
_FOR_THE_OPERATOR = frozenset({"needs_operator"})
_STALL = "stall"
_REHEARSAL_PAUSED = (
    "A simulated training runs only inside a command that follows it: "
    f"{command('wait', '{run}', '--until', 'end')} continues it."
)
_OVERDUE = f"No step comes any more: {command('inspect', '{run}')} shows where every rank waits."


def next_step(view: RunView, findings: Sequence[FoundOfRun], *, is_explained: bool = False) -> str:
    """One sentence with the next step for an operator or agent.

    `is_explained`: beside the answer of `diagnose`, which is then not advised again.
    """
    if view.incomplete is not None:
        if view.incomplete.startswith(NOT_CURRENT):
            again = command("status", view.run.run_id)
            return f"Nothing can be written into the home. Once it can, {again} again."
        return f"Its records are being rebuilt: {command('status', view.run.run_id)} in a while."
    if view.run.is_attached:
        return _of_attached(view, findings, is_explained)
    return _of_ours(view, findings, is_explained)


def _of_ours(view: RunView, findings: Sequence[FoundOfRun], is_explained: bool) -> str:
    run = view.run.run_id
    state = view.state
    if view.run.cleaned:
        return f"Cleaned: its files are gone, {command('metrics', run)} still answers."
    if state is RunState.COMPLETED:
        return _after_completion(view, findings, is_explained)
    if state is RunState.FAILED or view.record.reason in _FOR_THE_OPERATOR:
        return _after_failure(view, findings, is_explained)
    if view.host_is_gone:
        return (
            f"Its instance has ended: {command('resume', run, '--host', 'HOST')} resumes "
            f"elsewhere, from what is mirrored here; {command('offers')} lists machines for rent."
        )
    if state is RunState.STOPPED:
        return _after_stop(view, findings)
    return _while_open(view, findings, is_explained)


def _after_stop(view: RunView, findings: Sequence[FoundOfRun]) -> str:
    run, reason = view.run.run_id, view.record.reason or ""
    if reason in BY_REASON_OF_STOP:
        return BY_REASON_OF_STOP[reason].format(run=run)
    starts = "resumes from the last checkpoint"
    if view.index.resume_from is None and not any(view.started_at.values()):
        starts = "starts over, since it has no checkpoint"
    general = f"{command('resume', run)} {starts}"
    for finding in findings:
        if finding.patches and finding.severity != "info":
            return (
                f"{command('resume', run, '--apply', f'{finding.id}:{finding.patches[0]}')} "
                f"applies the patch for {finding.code} and starts; without it, {general}."
            )
    return f"{general}."


def _while_open(view: RunView, findings: Sequence[FoundOfRun], is_explained: bool) -> str:
    run, state = view.run.run_id, view.state
    if view.run.host == DEBUG and view.delivered and view.silent_for_s > UNCONFIRMED_AFTER_S:
        return _REHEARSAL_PAUSED.format(run=run)
    if state is RunState.LOST or _is_removed(view):
        return _unheard(view)
    if not view.delivered:
        return _NOT_DELIVERED
    if state is RunState.QUEUED and view.sessions is not None:
        return view.sessions.waits.replace("{run}", run).replace("{host}", view.run.host)
    if state is RunState.STOPPING and view.run.host == KAGGLE and view.sessions is not None:
        return _while_session_runs(run, view.sessions)
    if state is RunState.STOPPING:
        return f"Saving and ending. {command('wait', run, '--until', 'end', '--timeout', '600')}."
    if (early := _ends_early(view, f"{command('stop', run)}, then ")) is not None:
        return early
    pressing = [finding for finding in findings if finding.severity != "info"]
    if pressing:
        return _while_running(view, pressing[0], is_explained)
    if _is_overdue(view):
        return _OVERDUE.format(run=run)
    saves = saves_checkpoints(view.run) and not (view.attempts and view.attempts[-1].checkpoints)
    until = "checkpoint" if saves else "finding"
    return command("wait", run, "--until", f"{until},end", "--timeout", "3600")


def saves_checkpoints(run: Run) -> bool:
    """Whether a checkpoint can be waited for: a program that says of none saves none."""
    if run.is_attached:
        return False
    script = run.config.script
    return script is None or script.saves is not None


def _is_overdue(view: RunView) -> bool:
    """Whether the newest attempt has taken steps, and takes none for long."""
    progress = view.progress
    steps = progress is not None and progress.attempt == view.attempt
    return view.state is RunState.RUNNING and steps and step_is_overdue(progress, view.known_until)


def _while_session_runs(run: str, sessions: Sessions) -> str:
    until = None if sessions.newest is None else in_utc(sessions.newest.ends_t)
    lasts = f" lasts until {until} at most and" if until else ""
    return (
        f"Its session{lasts} is the last one, since Kaggle can't end it: "
        f"{command('wait', run, '--until', 'end')} waits for it; Kaggle's page of the kernel can "
        "cancel it."
    )


def _after_completion(view: RunView, findings: Sequence[FoundOfRun], is_explained: bool) -> str:
    run = view.run.run_id
    wrong = [finding.code for finding in findings if finding.severity == "critical"]
    script = view.run.config.script
    if view.run.config.schedule.is_range_test:
        return f"Done. {command('lr-test', '--report', run, in_shell=True)} says what was measured."
    if not wrong and script is not None and script.final is None:
        what = "code/*" if view.index.resume_from is None else "latest"
        return f"Done. {command('fetch', run, what, 'FOLDER')} brings what it saved."
    if not wrong:
        return f"Done. {command('fetch', run, 'final', 'FOLDER')} brings the model."
    steps = []
    if (best := view.index.best) is not None:
        steps.append(
            f"the best by validation is step {best}: {command('fetch', run, 'best', 'FOLDER')}"
        )
    if not is_explained:
        steps.append(f"{command('diagnose', run)} explains it")
    outcome = f"Completed, but with {wrong[0]}"
    return f"{outcome}: {'; '.join(steps)}." if steps else f"{outcome}."


def _while_running(view: RunView, finding: FoundOfRun, is_explained: bool) -> str:
    run = view.run.run_id
    if view.state is RunState.RECOVERING:
        return (
            f"It recovers by itself: {command('wait', run, '--until', 'checkpoint,finding,end')}."
        )
    if finding.code == _STALL:
        return (
            f"No step comes any more ({finding.code}, {finding.id}): {command('inspect', run)} "
            "shows where every rank waits."
        )
    explains = "" if is_explained else f"{command('diagnose', run)} explains {finding.code}. "
    if not finding.patches and finding.severity == "critical" and finding.by_host:
        return (
            f"{explains}Waiting does not fix it: {command('stop', run)} saves a checkpoint; once "
            f"the cause is fixed, {command('resume', run)}."
        )
    if not finding.patches:
        return f"{explains}To wait: {command('wait', run, '--until', 'checkpoint,finding,end')}."
    return (
        f"{explains}To apply its patch: {command('stop', run)}, then "
        f"{command('resume', run, '--apply', finding.id)}."
    )


def _after_failure(view: RunView, findings: Sequence[FoundOfRun], is_explained: bool) -> str:
    run = view.run.run_id
    if (early := _ends_early(view, "")) is not None:
        return early + _files_are_kept(view)
    if not findings:
        general = f"Read {command('logs', '{run}')}, then {command('resume', '{run}')}."
        advised = BY_REASON.get(view.record.reason or "", general)
        if view.record.reason == _UNUSABLE and not is_explained:
            advised = f"{command('diagnose', '{run}')} says why. {advised}"
        if view.unprepared is not None:
            advised = advised.replace(
                f"{command('logs', '{run}')}", f"{command('logs', '{run}', '--stream', 'setup')}", 1
            )
        return advised.format(run=run, host=view.run.host) + (
            _files_are_kept(view) if "resume" in advised else ""
        )
    for finding in findings:
        if finding.patches:
            patch = f"{finding.id}:{finding.patches[0]}"
            explains = "" if is_explained else f"{command('diagnose', run)} explains it; "
            return (
                f"{explains}{command('resume', run, '--apply', patch)} applies the patch and "
                "starts."
            )
    if any(finding.is_exhausted for finding in findings):
        return (
            "All patches were tried; change `optimizer.lr` yourself: "
            f"{command('resume', run, '--set', 'optimizer.lr=...')}."
        )
    if view.unprepared is not None:
        return (
            f"{command('logs', run, '--stream', 'setup')} shows the preparation; once the cause "
            f"is fixed: {command('resume', run)}."
        )
    kept = _files_are_kept(view)
    if is_explained and view.run.config.script is not None:
        return (
            f"Once the cause is fixed: {command('resume', run)}; with other arguments by "
            f"{option('--set', 'script.command=[...]')}.{kept}"
        )
    if is_explained:
        return f"Once the cause is fixed: {command('resume', run)}."
    return f"{command('diagnose', run)} says what to fix; then {command('resume', run)}.{kept}"


def _ends_early(view: RunView, first: str) -> str | None:
    """What to do where a program ended by itself before `steps`, as it would again."""
    ended = view.ended_early
    if ended is None or view.run.config.script is None:
        return None
    step = next(
        (progress.step for progress in view.attempts if progress.attempt == ended.number), 0
    )
    target = view.target_step
    if not step or target is None:
        return None
    return (
        f"Its program ends by itself at step {step}, and `steps` is {target}. If that is its end: "
        f"{first}{command('resume', view.run.run_id, '--set', f'steps={step}')}. Else have it "
        f"train until step {target}."
    )


def _files_are_kept(view: RunView) -> str:
    """What a resume does with a program that was changed since."""
    script = view.run.config.script
    if script is None or script.source is None:
        return ""
    return " A resume runs the files as they were launched: if you change them, launch again."


def _of_attached(view: RunView, findings: Sequence[FoundOfRun], is_explained: bool) -> str:
    """For an attached training: it can't be stopped or resumed from here."""
    run = view.run.run_id
    if view.run.cleaned:
        return f"Watched no longer; {command('metrics', run)} still answers."
    if view.state is RunState.FAILED:
        reading = "" if is_explained else f"Read {command('diagnose', run)}. "
        return f"{reading}Its owner has to start it again."
    if view.state is RunState.COMPLETED:
        return f"Done. {command('clean', run)} removes what watching it left on its host."
    if view.state is RunState.STOPPED:
        return f"Its end was not seen: {command('logs', run)} shows what it said last."
    if view.state is RunState.LOST:
        return _unheard(view)
    if not view.delivered:
        return _NOT_DELIVERED
    if _is_overdue(view):
        return _OVERDUE.format(run=run)
    critical = [finding.code for finding in findings if finding.severity == "critical"]
    if critical and not is_explained:
        return f"{command('diagnose', run)} explains {critical[0]}; only its owner can stop it."
    if critical:
        return f"Inform its owner of {critical[0]}: nobody else can stop it."
    return command("wait", run, "--until", "finding,end", "--timeout", "3600")


def _unheard(view: RunView) -> str:
    if _is_removed(view):
        again = f"{command('hosts add', view.run.host, 'ADDRESS')}"
        return f"Its host is not on record: {again} has the run found again."
    if view.link_error is None and view.sessions is None:
        return f"Its supervisor is silent: {command('tick')} starts it again where it has died."
    run, host = view.run.run_id, view.run.host
    if view.sessions is not None or view.run.is_attached:
        status = f"{command('status', run)}"
        return f"The host is silent. {command('tick')} tries again; {status}."
    silence = (
        f"The host is silent: {command('hosts check', host)} finds the cause. If it is gone for"
    )
    if view.run.config.compute.nodes == 1:
        return (
            f"{silence} good, {command('resume', run, '--host', 'HOST', '--abandon')} continues "
            "elsewhere, from what is mirrored here."
        )
    if not can_continue_without_first(view.run):
        return f"{silence} good, launch the run again: it can't continue without its first host."
    other = members_of(view.run)[0]
    return (
        f"{silence} good, {command('resume', run, '--host', other, '--abandon')} continues on its "
        "other hosts, from what is mirrored here."
    )


def _is_removed(view: RunView) -> bool:
    return view.link_error is not None and view.link_error[0] == "HOST_UNKNOWN"
