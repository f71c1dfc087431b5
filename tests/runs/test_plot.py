from __future__ import annotations

import asyncio
import base64
import math
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client
from support.core.journal_records import (
    attempt_ended,
    attempt_starting,
    evaluation,
    kept,
    lines,
    started,
)

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.plot import Axis, as_axis
from trainmaster.cli import run as command_line
from trainmaster.errors.errors import UsageError
from trainmaster.mcp import build_server
from trainmaster.metrics.plots.curves import Mark, RunCurves
from trainmaster.metrics.plots.palette import LIGHT
from trainmaster.metrics.plots.panels import panels_of
from trainmaster.metrics.plots.sketch import curve, plain, sketch
from trainmaster.runs.metrics.plot import draw_runs, plot_runs, sketch_runs
from trainmaster.store.run import Run
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.workspace import Workspace

RUN, OTHER = "small-abc234", "other-def567"
_PNG = b"\x89PNG\r\n\x1a\n"
_CONFIG = {
    "run_id": RUN,
    "name": "small",
    "framework": "nanogpt",
    "steps": 60,
    "checkpoint": {"metric": "val_loss", "mirror": None},
}
_FINDING = {"id": "f1", "code": "loss_spike", "severity": "critical", "step": 20}


def recorded(workspace: Workspace, run_id: str, *, name: str = "loss") -> None:
    """An ended run that spiked and was NaN at step 30, died at 40 and continued from 20 to 60."""
    run = Run(run_id, run_id[:-7], 1.0, "debug", "", _CONFIG, {}, {})
    workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "in_process", "/x", None)
    mirror = workspace.mirror.of(run_id, 1)
    first = [started(0, 60, tokens_per_step=100), *(_measured(step, name) for step in range(1, 41))]
    second = [started(20, 60), *(_measured(step, name) for step in range(21, 61))]
    kept_rows = [evaluation(20, 3.5), *kept(20, 3.5)]
    journal = [
        attempt_starting(1),
        ("sample", {"values": {"gpu_util": 90.0, "cpu_util": 12.0}}),
        ("finding", {"attempt": 1, "finding": _FINDING}),
        attempt_ended(1, "killed", started_at_step=0, last_step=40),
        attempt_starting(2, why="killed"),
        ("sample", {"values": {"gpu_util": 95.0, "cpu_util": 11.0}}),
    ]
    mirror.append(
        "attempts/1/events.jsonl", b"".join(lines([*first[:21], *kept_rows, *first[21:]]))
    )
    mirror.append("attempts/2/events.jsonl", b"".join(lines(second)))
    mirror.append("supervisor.jsonl", b"".join(lines(journal)))
    ingest_placement(workspace.metrics, mirror, run_id, 1)
    workspace.control.close_run(run_id, 1)


def _measured(step: int, name: str) -> tuple[str, dict[str, object]]:
    loss = "NaN" if step == 30 else 2.0 + 6.0 / step
    return "metric", {"step": step, "values": {name: loss, "lr": 1e-3, "tokens_per_s": 4e4}}


@pytest.fixture
def drawn(workspace: Workspace) -> Workspace:
    recorded(workspace, RUN)
    recorded(workspace, OTHER)
    return workspace


def test_a_picture_of_a_run_is_a_small_png_that_shows_what_is_marked(
    drawn: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "curves.png"
    answer = asyncio.run(plot_runs(drawn, [RUN], path))
    picture = path.read_bytes()
    assert picture.startswith(_PNG)
    assert answer.size_bytes == len(picture) < 100_000
    assert answer.keys == ["loss", "val_loss", "lr", "tokens_per_s", "gpu_util"]
    assert answer.marks == {
        RUN: ["restart attempt 2: killed at 20", "finding loss_spike at 20"],
    }
    assert list(tmp_path.glob("*.png")) == [path]  # nothing beside it


@pytest.mark.parametrize("axis", ["step", "tokens", "time"])
def test_runs_are_compared_over_every_axis(drawn: Workspace, tmp_path: Path, axis: str) -> None:
    path = tmp_path / "two.png"
    answer = asyncio.run(plot_runs(drawn, [RUN, "other"], path, axis=axis))  # type: ignore[arg-type]
    assert list(answer.runs) == [RUN, OTHER]
    assert min(answer.runs.values()) > 100
    assert path.stat().st_size < 100_000


def test_a_key_with_signs_of_mathematics_is_drawn_as_it_stands(
    workspace: Workspace, tmp_path: Path
) -> None:
    recorded(workspace, RUN, name="rewards/$\\frac{")
    answer = asyncio.run(plot_runs(workspace, [RUN], tmp_path / "a.png", keys=["rewards/$\\frac{"]))
    assert answer.runs[RUN] == 60


def test_a_run_without_points_gives_an_empty_picture(workspace: Workspace, tmp_path: Path) -> None:
    run = Run(RUN, "small", 1.0, "debug", "", _CONFIG, {}, {})
    workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "in_process", "/x", None)
    workspace.control.close_run(RUN, 1)
    answer = asyncio.run(plot_runs(workspace, [RUN], tmp_path / "a.png"))
    assert answer.runs == {RUN: 0} and (tmp_path / "a.png").exists()
    assert asyncio.run(sketch_runs(workspace, [RUN]))[0].lines == [
        "loss over step",
        "(nothing to draw)",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--key", "perplexty"], "They have cpu_util, gpu_util, loss, lr"),
        (["--x", "epoch"], "step, tokens, time"),
        (["-o", "curves.jpg"], ".png"),
        (["-o", "/no/such/folder/a.png"], "/no/such/folder"),
        ([f"r{number}" for number in range(20)], "at most 20"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    drawn: Workspace, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert command_line(["plot", RUN, *arguments]) == 2
    assert text in capsys.readouterr().err


def test_without_matplotlib_the_command_says_what_to_install(drawn: Workspace) -> None:
    without = "import sys; sys.modules['matplotlib'] = None; from trainmaster.cli import main; "
    ended = subprocess.run(
        [sys.executable, "-c", f"{without}main()", "plot", RUN, "-o", "a.png"],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert "-m pip install 'matplotlib>=3.9'" in ended.stderr


def test_a_plot_that_is_not_for_a_terminal_is_plain(
    drawn: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["plot", RUN, OTHER]) == 0
    text = capsys.readouterr().out
    assert text.isascii()
    assert "loss over step" in text
    assert f"a {RUN} loss" in text and f"d {OTHER} val_loss" in text


@pytest.mark.parametrize("dots", [False, True])
def test_curves_that_coincide_are_distinguished_without_colours(
    drawn: Workspace, dots: bool
) -> None:
    answer, _ = asyncio.run(sketch_runs(drawn, [RUN, OTHER], keys=["lr"], dots=dots))
    title, *rows = answer.lines or []
    drawing, legend = "".join(rows[:10]), [row.split() for row in rows[-2:]]
    assert title == "learning rate over step"
    assert legend == [["a", RUN, "lr"], ["b", OTHER, "lr"]]
    assert drawing.count("a") >= 3 and drawing.count("b") >= 3


def test_few_points_are_seen_on_a_line_that_passes_through_them() -> None:
    line = [(float(x), 100.0 - x) for x in range(100)]
    rows = [plain(row) for row in sketch([line, line[5::30]], dots=False)]
    assert "".join(rows).count("b") == len(line[5::30])


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.0006, 0.0001], ["6.000e-04", "3.222e-04", "1.000e-04"]),
        ([10.9, 2.9], ["10.90", "6.46", "2.90"]),
        ([3.0005, 3.0001], ["3.000500", "3.000278", "3.000100"]),
    ],
)
def test_the_numbers_of_an_axis_have_one_form(values: list[float], labels: list[str]) -> None:
    rows = sketch([[(float(x), y) for x, y in enumerate(values)]], dots=False)
    named = [plain(row).split()[0] for row in (rows[0], rows[5], rows[9])]
    assert named == labels


@pytest.mark.slow
def test_an_agent_sees_the_picture_and_where_it_lies(drawn: Workspace, home: Path) -> None:
    async def scenario() -> None:
        async with Client(build_server({"TRAINMASTER_HOME": str(home)}), mode="legacy") as client:
            result = await client.call_tool("plot_metrics", {"run_id": RUN})
            assert not result.is_error
            assert result.structured_content is not None
            path = Path(result.structured_content["path"])
            image = result.content[1]
            assert image.type == "image" and image.mime_type == "image/png"
            assert base64.b64decode(image.data) == path.read_bytes()
            assert path.is_relative_to(home)
            refused = await client.call_tool("plot_metrics", {"run_id": []})
            assert refused.is_error

    asyncio.run(scenario())


def test_a_bucket_keeps_the_extremes_that_its_mean_hides() -> None:
    from trainmaster.metrics.plots.figure import bucketed

    points = [(float(x), 100.0 if x == 500 else 1.0) for x in range(1000)]
    buckets = bucketed([*points, (1000.0, math.nan)], 10)
    assert len(buckets.mean) == 10
    assert max(buckets.high) == 100.0 and max(buckets.mean) < 3.0
    assert buckets.nonfinite == [1000.0]


def test_a_curve_falls_from_its_first_corner_to_its_last() -> None:
    falling = [(float(x), 9.0 - x) for x in range(10)]
    rows = [plain(line) for line in sketch([falling], dots=False, width=10, height=10)]
    assert rows[0] == "        9 |*"
    assert rows[9] == "        0 |         *"
    assert rows[-1] == "           0        9"
    assert curve([(0.0, math.nan)]) == ["(nothing to draw)"]


def test_the_status_page_is_there_without_the_box(
    drawn: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["status", RUN, "--page"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# small\n")
    assert "step 60 of 60" in text and "| 2 | killed | 20 | 60 |" in text


def test_an_unknown_axis_is_refused() -> None:
    with pytest.raises(UsageError, match="axis"):
        as_axis("steps")


_LOG = "iter {}: loss {:.4f}, time 100.00ms, mfu 1.00%\n"


def test_a_log_file_is_drawn_beside_a_run_without_what_a_restart_took_back(
    drawn: Workspace, tmp_path: Path
) -> None:
    log = tmp_path / "theirs.log"
    values = [*((step, 9.0) for step in range(10)), *((step, 2.0) for step in range(5, 20))]
    log.write_text("".join(_LOG.format(step, value) for step, value in values))
    answer, (curves, other), _ = asyncio.run(
        draw_runs(drawn, [str(log), RUN], keys=["loss"], axis="step")
    )
    assert curves.series["loss"] == [
        *((step, 9.0) for step in range(5)),
        *((step, 2.0) for step in range(5, 20)),
    ]
    assert (answer.runs, other.run_id) == ({str(log): 20, RUN: 60}, RUN)
    picture = asyncio.run(plot_runs(drawn, [str(log)]))
    assert Path(str(picture.path)).parent == drawn.home.plot("x").parent


@pytest.mark.parametrize("axis", ["tokens", "time"])
def test_a_log_that_has_no_tokens_or_times_is_drawn_over_steps_alone(
    drawn: Workspace, tmp_path: Path, axis: Axis
) -> None:
    log = tmp_path / "theirs.log"
    log.write_text(_LOG.format(1, 2.0))
    with pytest.raises(UsageError) as refused:
        asyncio.run(sketch_runs(drawn, [str(log)], axis=axis))
    assert (refused.value.code, refused.value.field) == ("BAD_ARGUMENT", "x")


def test_a_line_is_broken_over_a_pause_and_not_where_steps_are_reported_less_often() -> None:
    from trainmaster.metrics.plots.figure import broken, bucketed

    paused = broken(bucketed([(float(x), 1.0) for x in (*range(9), *range(300, 309))], 400))
    assert [x for x in paused.x if not math.isnan(x)] == [*range(9), *range(300, 309)]
    assert [math.isnan(x) for x in paused.x].index(True) == 9
    assert len(paused.x) == len(paused.mean) == len(paused.low) == len(paused.high) == 19
    sparser = bucketed([(float(x), 1.0) for x in (*range(10), *range(100, 1000, 100))], 400)
    assert broken(sparser) == sparser


def test_what_took_less_than_a_minute_is_drawn_over_seconds() -> None:
    for last, unit, end in ((0.5, "seconds", 30.0), (2.0, "minutes", 2.0)):
        run = RunCurves(RUN, {"loss": [(0.0, 2.0), (last, 1.0)]}, ())
        (panel,) = panels_of([run], ("loss",), "time")
        assert panel.x_label == unit
        assert panel.along(run.series["loss"])[-1] == (end, 1.0)
        assert panel.place(Mark("restart", None, last, "attempt 2")) == end


def test_labels_of_marks_stand_apart_from_the_axis_and_from_each_other() -> None:
    from matplotlib.text import Annotation, Text

    from trainmaster.metrics.plots.figure import figure_of

    marks = [Mark("finding", float(x), 0.0, f"finding_{x}") for x in (0, 30, 30, 31)]
    run = RunCurves(RUN, {"loss": [(float(x), 8.0 - x / 10) for x in range(60)]}, marks)
    figure = figure_of([run], panels_of([run], (), "step"), RUN)
    figure.canvas.draw()
    axes = figure.axes[0]
    labels = [item for item in axes.texts if isinstance(item, Annotation)]
    assert len(labels) >= 3
    extents = [Text.get_window_extent(label) for label in labels]
    for index, box in enumerate(extents):
        assert box.x0 >= axes.get_window_extent().x0
        assert not any(box.overlaps(other) for other in extents[:index])


def test_curves_of_several_runs_differ_in_dash_and_shape_too() -> None:
    from trainmaster.metrics.plots.figure import figure_of

    points = [(float(x), 2.0) for x in range(30)]
    runs = [RunCurves(f"run-{number}", {"loss": points}, ()) for number in range(20)]
    axes = figure_of(runs, panels_of(runs, (), "step"), RUN).axes[0]
    styles = {(str(line._dash_pattern), line.get_marker()) for line in axes.get_lines()}  # type: ignore[attr-defined]
    assert len(styles) == 20


def test_a_picture_has_the_colours_and_marks_of_the_board() -> None:
    from matplotlib.colors import to_hex

    from trainmaster.metrics.plots.figure import figure_of

    marks = [Mark("phase", 10.0, 0.0, "main"), Mark("restart", 20.0, 0.0, "attempt 2: killed")]
    points = [(float(x), 2.0) for x in range(30)]
    run = RunCurves(RUN, {"loss": points, "val_loss": points[::10]}, marks)
    axes = figure_of([run], panels_of([run], (), "step"), RUN).axes[0]
    drawn = {to_hex(line.get_color()) for line in axes.get_lines()}
    assert drawn == {*LIGHT.series[:2], LIGHT.marks["phase"], LIGHT.marks["restart"]}
    evaluated = next(line for line in axes.get_lines() if line.get_label() == "val_loss")
    assert evaluated.get_marker() == "o"
    assert {text.get_text() for text in axes.texts} == {"▸ main", "↻ attempt 2: killed"}
