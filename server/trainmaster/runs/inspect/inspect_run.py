"""`inspect`: one bounded inspection of the processes of a run, through its backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from trainer_runtime.core.diagnosis.stacks import messages
from trainer_runtime.core.diagnosis.stacks import verdict as verdicts
from trainer_runtime.core.diagnosis.stacks.messages import stopped_pid
from trainer_runtime.core.diagnosis.stacks.report import InspectionReport, RankReport
from trainer_runtime.core.diagnosis.stacks.verdict import Pace, Verdict
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import rounded, spoken_duration
from trainer_runtime.core.protocol.text import shown
from trainmaster.answers.inspect import Code, InspectionAnswer, RanksSeen
from trainmaster.backends import Inspector
from trainmaster.errors.confirmation import Confirm, Quote, agreed
from trainmaster.errors.errors import HostError, StateError
from trainmaster.runs.status.next_step import saves_checkpoints
from trainmaster.store.run import Run
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_UNKNOWN = Pace()
_BY_PY_SPY = {
    "not_allowed": f"The run is attached: {command('inspect', '{run}', '--allow-py-spy')} reads "
    "it from outside, without stopping it.",
    "not_installed": "It does not answer by itself: install py-spy on {host} (`pip install "
    f"py-spy`), then {command('inspect', '{run}')} again.",
    "refused": "The system forbids reading it: as root on {host}, `py-spy dump --pid PID`, or "
    "`sysctl kernel.yama.ptrace_scope=0`.",
}
_MOVING = command("wait", "{run}", "--until", "{event},end", "--timeout", "3600")
_BY_CODE = {
    verdicts.MOVING: _MOVING,
    verdicts.SLOW: (
        f"It progresses: {command('metrics', '{run}', '--key', 'step_time_s')}, then wait."
    ),
    verdicts.STALL: f"Repeat in a minute: {command('inspect', '{run}')}; if nothing has changed, "
    f"{command('stop', '{run}')} and {command('resume', '{run}')}.",
}
_OVERDUE = f"No step for {{silent}}: {command('stop', '{run}')} and {command('resume', '{run}')}."
_OVERDUE_OF_OTHERS = "No step for {silent}: its owner has to end it and start it again."
_AFTER_HANGS = (
    f"It will not continue by itself: fix the cause, then {command('stop', '{run}')} and "
    f"{command('resume', '{run}')}."
)
_STOPPED = (
    "`kill -CONT {pid}` on {host} lets it continue; if nothing changes, "
    f"{command('stop', '{run}')} and {command('resume', '{run}')}."
)
# An attached training can't be stopped or resumed from here.
_OF_OTHERS = {
    verdicts.MOVING: _MOVING,
    verdicts.SLOW: _BY_CODE[verdicts.SLOW],
    verdicts.STALL: f"Repeat in a minute: {command('inspect', '{run}', '--allow-py-spy')}; if "
    "nothing has changed, its owner has to end it and start it again.",
}
_AFTER_HANGS_OF_OTHERS = (
    "It will not continue by itself: fix the cause; its owner has to start it again."
)
_STOPPED_OF_OTHERS = (
    "`kill -CONT {pid}` on {host}, by the owner of the process, lets it continue; then "
    f"{command('wait', '{run}', '--until', 'finding,end')}."
)
WITHIN_S = 36.0
_LEAST_S = 5.0
_FRAMES = 5
_MOST_GROUPS = 6
_KEPT_FILES = 20
_LONGEST_LINE = 160
# What a host finds by stacks that it then keeps.
_HANGS = frozenset({"hang_collective", "hang_data", "hang_checkpoint"})
_LARGEST_STACKS = 1 << 20  # characters


async def inspect_run(
    workspace: Workspace,
    run: str,
    *,
    allow_py_spy: bool = False,
    confirm: Confirm = agreed,
    within_s: float = WITHIN_S,
) -> InspectionAnswer:
    """Where every rank of a run is, what the GPUs do, and the verdict.

    `allow_py_spy`: py-spy may read the process of an attached run, once that is confirmed. The time
    for the confirmation is part of `within_s`.

    Raises:
        StateError: `RUN_NOT_FOUND`, `RUN_ENDED`.
        HostError: the host can't be reached, or does not answer within `within_s`.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    began = time.monotonic()
    view = await refresh(workspace, run)
    _refuse_ended(workspace, view)
    view.refuse_unreachable()
    if allow_py_spy and view.run.is_attached:
        await confirm(_quote(view))
    left_s = max(_LEAST_S, within_s - (time.monotonic() - began))
    attempt = max(1, view.attempt)
    inspector = Inspector.of(workspace.backend(view.run.host), run_id=view.run.run_id)
    try:
        async with asyncio.timeout(left_s):
            report = await inspector.inspect(view.run.run_id, attempt, allow_py_spy=allow_py_spy)
    except TimeoutError as error:
        raise HostError(
            "HOST_UNREACHABLE",
            f"{view.run.host} has not answered within {spoken_duration(left_s)}.",
            f"{command('hosts check', view.run.host)} shows what is wrong with it.",
            retryable=True,
        ) from error
    return _answer(workspace, view, attempt, report)


def _quote(view: RunView) -> Quote:
    run = view.run
    text = (
        f"Let py-spy read the memory of the processes of {run.run_id} on {run.host}, which "
        "Trainmaster did not start; they keep running."
    )
    return Quote("inspect", run.run_id, text)


def _refuse_ended(workspace: Workspace, view: RunView) -> None:
    if view.ended:
        raise StateError(
            "RUN_ENDED",
            f"Run {view.run.run_id} is {view.state.value}: it has no processes to inspect.",
            _after_its_end(workspace, view),
        )


def _after_its_end(workspace: Workspace, view: RunView) -> str:
    """Where stacks of the run are, as far as any are known to have been taken."""
    run = view.run.run_id
    kept = sorted(workspace.home.stacks(run).glob("*.txt"))
    if kept:
        return f"The stacks of its last inspection are in {kept[-1]}."
    hung = [
        finding_record.attempt
        for finding_record in view.record.findings.values()
        if finding_record.finding.code in _HANGS
    ]
    if hung and not view.run.cleaned:
        pattern = f"'attempts/{max(hung)}/stacks.txt'"
        return (
            f"Stacks that its host took when it hung: {command('fetch', run, pattern, 'FOLDER')}."
        )
    return f"{command('diagnose', run)} shows what was found."


def _answer(
    workspace: Workspace, view: RunView, attempt: int, report: InspectionReport
) -> InspectionAnswer:
    verdict, pace = report.verdict, report.pace
    ours = not view.run.is_attached
    finding = messages.as_finding(
        verdict, placement=view.run.placement, attempt=attempt, step=pace.step, ours=ours
    )
    return InspectionAnswer(
        run_id=view.run.run_id,
        attempt=attempt,
        verdict=cast(Code, verdict.code),
        confidence=verdict.confidence,
        why=messages.explain(verdict),
        rank=verdict.rank,
        advice=list(messages.advice(verdict, ours=ours)),
        step=pace.step,
        silent_s=_rounded(pace.silent_s),
        usual_step_s=_rounded(pace.usual_s),
        world_size=report.world_size,
        ranks=_groups(report.ranks, verdict),
        gpus=_columns(report.gpus) or None,
        finding=finding.id if finding else None,
        stacks_file=_keep(workspace, view, attempt, report.stacks),
        py_spy=None if report.py_spy is None else shown(report.py_spy.encode())[:40],
        next_step=next_step(view.run, verdict, report.py_spy, pace),
    )


def _groups(ranks: Sequence[RankReport], verdict: Verdict) -> list[RanksSeen]:
    """Ranks at the same place as one row; the one that differs first, then the smaller groups."""
    groups: dict[object, list[RankReport]] = {}
    for rank_report in ranks:
        groups.setdefault((rank_report.at, rank_report.process.frames[:_FRAMES]), []).append(
            rank_report
        )
    ordered = sorted(
        groups.values(),
        key=lambda group: (
            verdict.rank not in [rank_report.rank for rank_report in group],
            len(group),
        ),
    )
    return [_group(group) for group in ordered[:_MOST_GROUPS]]


def _group(group: Sequence[RankReport]) -> RanksSeen:
    first = group[0]
    stuck = next((worker for worker in first.workers if worker.frames), None)
    return RanksSeen(
        ranks=[rank_report.rank for rank_report in group],
        pids=[rank_report.process.pid for rank_report in group],
        at=first.at[:20],
        state=first.process.state[:1],
        cpu_share=first.process.cpu_share,
        step=first.step,
        lines=_lines(first.process.frames[:_FRAMES]),
        blocked=_lines(first.process.blocked) or None,
        workers=len(first.workers) or None,
        worker_pids=[worker.pid for worker in first.workers] or None,
        worker_lines=_lines(stuck.frames[:2]) if stuck else None,
    )


def _lines(texts: Sequence[str]) -> list[str]:
    return [shown(text.encode(errors="replace"))[:_LONGEST_LINE] for text in texts]


def _columns(gpus: Mapping[str, object]) -> dict[str, list[Any]]:
    """`{"gpu_util/0": 1.0, …}` as a column per key, a row per GPU."""
    indices = sorted({int(key.partition("/")[2]) for key in gpus if "/" in key})
    names = sorted({key.partition("/")[0] for key in gpus if "/" in key})
    columns: dict[str, list[Any]] = {
        name: [gpus.get(f"{name}/{i}") for i in indices] for name in names
    }
    return {"index": list(indices), **columns} if indices else {}


def _keep(workspace: Workspace, view: RunView, attempt: int, text: str) -> str | None:
    """Write the stacks to a file; the newest twenty of a run are kept."""
    if not text:
        return None
    folder = workspace.home.stacks(view.run.run_id)
    folder.mkdir(parents=True, exist_ok=True)
    when = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = folder / f"{when}-attempt-{attempt}.txt"
    write_atomic(path, _harmless(text).encode())
    for old in sorted(folder.glob("*.txt"))[:-_KEPT_FILES]:
        old.unlink(missing_ok=True)
    return str(path)


def _harmless(text: str) -> str:
    lines = text[:_LARGEST_STACKS].splitlines()
    return "".join(f"{shown(line.encode(errors='replace'))}\n" for line in lines)


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value, 4)


def next_step(run: Run, verdict: Verdict, py_spy: object, pace: Pace = _UNKNOWN) -> str:
    """One sentence with the next step for an operator or agent."""
    others = run.is_attached
    by_code, hangs = (_OF_OTHERS, _AFTER_HANGS_OF_OTHERS) if others else (_BY_CODE, _AFTER_HANGS)
    sentence = by_code.get(verdict.code, hangs)
    pid = stopped_pid(verdict)
    unread = _BY_PY_SPY.get(str(py_spy))
    if pid is not None:
        sentence = _STOPPED_OF_OTHERS if others else _STOPPED
    elif unread is not None and verdict.code == verdicts.STALL:
        sentence = unread
    elif verdict.code == verdicts.STALL and pace.is_overdue:
        sentence = _OVERDUE_OF_OTHERS if others else _OVERDUE
    silent = spoken_duration(pace.silent_s or 0.0)
    event = "checkpoint" if saves_checkpoints(run) else "finding"
    return sentence.format(run=run.run_id, host=run.host, pid=pid, silent=silent, event=event)
