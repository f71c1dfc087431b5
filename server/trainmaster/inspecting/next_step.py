"""What to do after a look at a run, from a closed catalogue."""

from __future__ import annotations

from trainer_runtime.core.stacks import verdict as verdicts
from trainer_runtime.core.stacks.verdict import Verdict

_BY_PY_SPY = {
    "not_allowed": "Its process is not ours: `trainmaster inspect {run} --allow-py-spy` reads it "
    "from outside, without stopping it.",
    "not_installed": "It does not answer by itself: install py-spy on {host} (`pip install "
    "py-spy`), then `trainmaster inspect {run}` again.",
    "refused": "The system lets nobody read it: as root on {host}, `py-spy dump --pid PID`, or "
    "`sysctl kernel.yama.ptrace_scope=0`.",
}
_BY_CODE = {
    verdicts.MOVING: "trainmaster wait {run} --until checkpoint,end --timeout 3600",
    verdicts.SLOW: "It goes on: `trainmaster metrics {run} --key step_time_s`, then wait.",
    verdicts.STALL: "Look again in a minute: `trainmaster inspect {run}`; if nothing has changed, "
    "`trainmaster stop {run}` and `trainmaster resume {run}`.",
}
_HANGS = (
    "It will not go on by itself: mend the cause, then `trainmaster stop {run}` and "
    "`trainmaster resume {run}`."
)


def next_step(run_id: str, host: str, verdict: Verdict, py_spy: object) -> str:
    """One sentence that says what an operator or agent would do now."""
    unread = _BY_PY_SPY.get(str(py_spy))
    sentence = _BY_CODE.get(verdict.code, _HANGS)
    if unread is not None and verdict.code == verdicts.STALL:
        sentence = unread
    return sentence.format(run=run_id, host=host)
