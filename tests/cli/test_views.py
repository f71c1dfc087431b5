from __future__ import annotations

import math

import pytest

from trainer_runtime.core.protocol.curve import sparkline
from trainer_runtime.core.protocol.figures import number_text, size_text
from trainmaster.answers import hosts as host_answers
from trainmaster.answers import run_list, runs, status
from trainmaster.answers.base import Answer
from trainmaster.answers.checks import failed, warning
from trainmaster.answers.keeper import KeeperAnswer, TickAnswer
from trainmaster.answers.metrics import MetricsAnswer, MetricSeries
from trainmaster.cli.output import emit, printable
from trainmaster.cli.progress_bar import describe
from trainmaster.cli.views import hosts as host_views
from trainmaster.cli.views import maintenance
from trainmaster.cli.views import plan as plan_views
from trainmaster.cli.views.blocks import Grid, view

_STATUS = status.StatusAnswer(
    run_id="small-abc234",
    name="small",
    state="running",
    host="local",
    heartbeat_age_s=42.0,
    unconfirmed=True,
    attempt=2,
    step=1200,
    target_step=5000,
    eta_s=3700.0,
    metrics={"loss": 1.23456, "grad_norm": "NaN"},
    findings=[status.FindingRow(id="f1", code="nan_loss", severity="critical")],
    checkpoint=status.CheckpointState(step=1000, age_s=61.0, mirrored_step=500),
    attempts=[status.AttemptRow(number=1, why="launch", last_step=800, reason="killed")],
    next_step="Wait.",
)


def text_of(answer: Answer) -> str:
    """All that people see of an answer, cells included."""
    lines = []
    for block in view(answer):
        rows = [block.columns, *block.rows] if isinstance(block, Grid) else [[block]]
        lines += ["  ".join(row) for row in rows]
    return "\n".join(lines)


def test_a_status_reads_top_to_bottom() -> None:
    assert text_of(_STATUS).splitlines() == [
        "small-abc234: running on local, attempt 2",
        "Step 1,200 of 5,000, 1 h 1 min to go",
        "Metrics: loss=1.235  grad_norm=NaN",
        "Finding: critical nan_loss (f1)",
        "Checkpoint: step 1,000, 1 min 1 s old, mirrored up to 500",
        "attempt  why  from step  to step  ended by",
        "1  launch    800  killed",
        "Heard from: 42 s ago (unconfirmed)",
        "Next: Wait.",
    ]


def test_a_status_while_waiting_is_one_line() -> None:
    assert describe(_STATUS) == "running  step 1200/5000  loss 1.235  1 h 1 min to go"


def test_a_plan_shows_values_as_the_spec_has_them_and_estimates_in_units_of_people() -> None:
    plan = runs.PlanAnswer(
        name="small",
        host="local",
        decisions=[runs.PlanDecision(field="compute.compile", value=False, reason="slower")],
        estimates={
            "parameters": 23648,
            "memory_gib": 0.4,
            "disk_gib": 12.0,
            "mfu": 0.413,
            "hours": 2.5,
            "ranges": {"hours": (9e-05, 4.0)},
        },
        gpu={"recommended": "none", "reason": "A CPU will do.", "planned": "cpu"},
        warnings=["small data"],
    )
    assert text_of(plan).splitlines() == [
        "Plan for small on local",
        "field  value  reason",
        "compute.compile  false  slower",
        "estimate  value  range",
        "parameters  23,648  ",
        "memory  410 MiB  ",
        "disk  12 GiB  ",
        "MFU  41 %  ",
        "time  2 h 30 min  under a second to 4 h",
        "GPU: none needed (A CPU will do); planned for cpu",
        "Warning: small data",
    ]
    assert plan_views.view is maintenance.view is host_views.view is view


def test_a_plan_whose_time_nobody_knows_says_when_it_will_be_known() -> None:
    plan = runs.PlanAnswer(
        name="small", host="local", decisions=[], estimates={"parameters": 23648}, warnings=[]
    )
    assert text_of(plan).splitlines()[2:] == [
        "estimate  value",
        "parameters  23,648",
        "time  no comparable run yet: known after the first steps",
    ]


def test_metrics_show_a_curve_and_say_so_when_there_is_none() -> None:
    series = MetricSeries(n=3, first=3.0, last=1.0, steps=[1, 2, 3], values=[3.0, 2.0, 1.0])
    reported = text_of(MetricsAnswer(runs={"small": {"loss": series}}))
    assert "small  loss  █▅▁  3  1      3" in reported
    assert text_of(MetricsAnswer(runs={})) == "No points yet."


def test_damaged_checkpoints_are_distinguished_from_unchecked_ones() -> None:
    rows = [
        runs.CheckpointRow(
            step=step, time=0.0, path="p", size_bytes=2048, metrics={}, tags=[], verified=verified
        )
        for step, verified in ((1, True), (2, False), (3, None))
    ]
    skipped = [runs.SkippedCheckpoint(step=2, untrusted_detail="a chunk differs")]
    reported = text_of(runs.CheckpointsAnswer(checkpoints=rows, skipped=skipped, resume_from=None))
    assert [word for word in ("verified", "damaged", "not checked") if word not in reported] == []
    assert "Skipped: step 2, does not verify: a chunk differs" in reported
    assert "from scratch" in reported


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (run_list.RunsAnswer(runs=[]), "No runs."),
        (TickAnswer(runs=[]), "Nothing is due."),
        (
            KeeperAnswer(
                home="/h",
                installed=True,
                by="cron",
                every="5m",
                wrote={"crontab": "*/5 * * * * tick"},
                last_tick_at="2026-11-22T03:00:00Z",
                last_tick="failed",
                failed={"small-abc234": "LINK_LOST: it broke."},
                overdue=True,
                put_into_secrets_env=["RUNPOD_API_KEY"],
            ),
            "cron calls the keeper of /h every 5m; it is overdue.\n"
            "crontab:\n  */5 * * * * tick\n"
            "Last tick: 2026-11-22T03:00:00Z, failed\n"
            "Failed: small-abc234: LINK_LOST: it broke.\n"
            "A timer has no variables of your shell: put into /h/secrets.env RUNPOD_API_KEY",
        ),
        (
            runs.LaunchAnswer(run_id="r", state="preparing", attempt=1, host="local"),
            "r: preparing, attempt 1 on local",
        ),
        (
            runs.StopAnswer(run_id="r", state="stopping", pending=True, next_step="Wait."),
            "r: stopping; the host has not been reached yet\nNext: Wait.",
        ),
        (
            runs.CleanAnswer(run_id="r", host="h", removed=["a"], freed_bytes=3072, kept=["final"]),
            "r on h: removed 0 checkpoints and 1 other files and folders; 3 KiB freed; kept: 1\n"
            "Removed: a\nKept: final",
        ),
        (
            runs.ReplayAnswer(runs=2, points=1500, seconds=0.25),
            "Read 1,500 points of 2 runs again in 0.25 s.",
        ),
    ],
)
def test_small_answers_are_reported_in_words(answer: Answer, expected: str) -> None:
    assert text_of(answer) == expected


def test_plain_output_is_aligned_and_carries_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        run_list.RunRow(run_id=name, name="n", state="running", step=1, host="h", labels=labels)
        for name, labels in (("a", {"x": "\x1b[31mred\u202e"}), ("longer", {}))
    ]
    emit(run_list.RunsAnswer(runs=rows), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.index("running") for line in lines[1:]] == [lines[0].index("state")] * 2
    assert all(line.isprintable() and line == line.rstrip() for line in lines)


def test_printable_text_keeps_letters_of_every_script() -> None:
    assert printable("Größe 大小\ttab\x00\u200b") == "Größe 大小 tab"


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**40, "1 TiB")],
)
def test_sizes_are_in_binary_units(size_bytes: int, expected: str) -> None:
    assert size_text(size_bytes) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1234567, "1,234,567"), (0.000123456, "0.0001235"), ("NaN", "NaN"), (True, "True")],
)
def test_values_have_four_digits(number: object, expected: str) -> None:
    assert number_text(number) == expected


def test_a_sparkline_marks_what_is_not_finite() -> None:
    assert sparkline([1.0, "NaN", 2.0, math.inf]) == "▁!█!"
    assert sparkline(["NaN"]) == "!"
    assert sparkline([5.0, 5.0]) == "▁▁"
    assert sparkline([]) == ""


def test_hosts_and_their_checks_are_tables_with_what_stands_in_the_way() -> None:
    checks = [
        warning("gpu 0", "held: ann", "Ask ann."),
        failed("root", "full", "Free some room."),
    ]
    row = host_answers.HostRow(
        name="gpu1",
        address="me@box",
        transport="asyncssh",
        root="~/.trainmaster",
        cache="/scratch/tm",
        state="unreachable",
        untrusted_reason="no route",
        gpus=["H100 (80 GiB)", "H100 (80 GiB)"],
        open_runs=2,
    )
    check = host_answers.HostCheckAnswer(host="gpu1", ok=False, checks=checks)
    reported = text_of(host_answers.HostsAnswer(hosts=[row], check=check))
    for words in (
        "  me@box  asyncssh  ~/.trainmaster, cache /scratch/tm  H100 (80 GiB), ",
        "gpu1  unreachable  ",
        "gpu1: no route",
        "warn  gpu 0  held: ann  Ask ann.",
        "gpu1 can't train like this.",
    ):
        assert words in reported


def test_what_a_cache_loses_and_keeps_is_reported_with_sizes() -> None:
    answer = host_answers.GcAnswer(
        host="gpu1",
        removed=[host_answers.CacheEntry(kind="data", name="aa", size_bytes=2048)],
        kept=[host_answers.CacheEntry(kind="venvs", name="bb", size_bytes=3072, reason="run x")],
        freed_bytes=2048,
        dry_run=True,
    )
    assert text_of(answer).splitlines()[1:] == [
        "Would remove  data/aa  2 KiB  ",
        "Kept  venvs/bb  3 KiB  run x",
        "Would remove 2 KiB from the cache of gpu1",
    ]
