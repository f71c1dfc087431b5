"""What a wait writes to a stream that nobody watches."""

from __future__ import annotations

import pytest
from support.runs.running_run import run_async

from trainmaster.answers.status import StatusAnswer
from trainmaster.cli.progress_bar import HEARTBEAT_S, showing_progress


def test_a_piped_wait_prints_a_line_a_minute_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0

    async def work() -> None:
        nonlocal now_s
        with showing_progress(False, clock=lambda: now_s) as listen:
            assert listen is not None
            for _ in range(int(2.5 * HEARTBEAT_S)):
                now_s += 1.0
                await listen(_STATUS)

    run_async(work)
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert len(lines) == 2 and printed.out == ""
    assert lines[0].endswith("gpt-abc234: running  step 120/500  loss 2.5  2 min to go")


_STATUS = StatusAnswer(
    run_id="gpt-abc234",
    name="gpt",
    state="running",
    host="local",
    attempt=1,
    step=120,
    target_step=500,
    eta_s=120.0,
    metrics={"loss": 2.5},
    findings=[],
    next_step="",
)
