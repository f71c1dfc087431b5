"""The next step after an inspection, from a closed catalogue."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.stacks import verdict as verdicts
from trainer_runtime.core.diagnosis.stacks.messages import stopped_pid
from trainer_runtime.core.diagnosis.stacks.verdict import Pace, Verdict
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.runs.status.next_step import saves_checkpoints
from trainmaster.store.run import Run

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
_HANGS = (
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
_HANGS_OF_OTHERS = "It will not continue by itself: fix the cause; its owner has to start it again."
_STOPPED_OF_OTHERS = (
    "`kill -CONT {pid}` on {host}, by the owner of the process, lets it continue; then "
    f"{command('wait', '{run}', '--until', 'finding,end')}."
)


def next_step(run: Run, verdict: Verdict, py_spy: object, pace: Pace = _UNKNOWN) -> str:
    """One sentence with the next step for an operator or agent."""
    others = run.is_attached
    by_code, hangs = (_OF_OTHERS, _HANGS_OF_OTHERS) if others else (_BY_CODE, _HANGS)
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
