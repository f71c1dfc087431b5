"""Runs beside each other, parts of them, and the best of all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.core.journal_records import FIRST_T, attempt_starting, lines, metric, started

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.metrics import MetricsAnswer, MetricSeries
from trainmaster.cli.views.metrics import ranked_runs
from trainmaster.errors.errors import UsageError
from trainmaster.metrics.compare import compare_metrics, last_values
from trainmaster.metrics.rank import Among, rank_runs
from trainmaster.metrics.selection import moving_average, selection
from trainmaster.metrics.sources import RunSource
from trainmaster.store.run import Run
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

FAST, SLOW = "fast-abc234", "slow-abc234"


@pytest.fixture
def two_runs(workspace: Workspace) -> Workspace:
    """One takes 100 tokens a step, the other 50; both lose 0.01 a step. The first was restarted
    from step 20, beyond which its first attempt had been better."""
    for run_id, tokens, value in ((FAST, 100, 3.0), (SLOW, 50, 4.0)):
        run = Run(run_id, run_id, 1.0, "debug", "", {"steps": 40}, {}, {}, closed=True)
        workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "in_process", "/x", None)
        mirror = workspace.mirror.of(run_id, 1)
        points = [metric(n, value - n / 100, tokens=tokens * n) for n in range(1, 41)]
        if run_id == FAST:
            better = [metric(n, 1.0, tokens=tokens * n) for n in range(21, 30)]
            first = b"".join(lines((started(0), *points[:20], *better)))
            mirror.append("attempts/1/events.jsonl", first)
            mirror.append("attempts/2/events.jsonl", b"".join(lines((started(20), *points[20:]))))
        else:
            mirror.append("attempts/1/events.jsonl", b"".join(lines((started(0), *points))))
        samples = [("sample", {"values": {"gpu_util": float(n)}}) for n in range(10)]
        mirror.append("supervisor.jsonl", b"".join(lines((attempt_starting(1), *samples))))
        ingest_placement(workspace.metrics, mirror, run_id, 1)
    return workspace


def asked(workspace: Workspace, *keys: str, most: int | None = 4, **part: object) -> MetricsAnswer:
    sources = [RunSource(workspace, load_view(workspace, run), run) for run in (FAST, SLOW)]
    return compare_metrics(sources, keys, most, selection(**part))  # type: ignore[arg-type]


def test_runs_side_by_side_on_tokens_are_cut_at_the_same_places(two_runs: Workspace) -> None:
    answer = asked(two_runs, "loss", axis="tokens")
    fast, slow = answer.runs[FAST]["loss"], answer.runs[SLOW]["loss"]
    assert (fast.x, fast.steps) == ([1000, 2000, 3000, 4000], [10, 20, 30, 40])
    assert (slow.x, slow.steps) == ([1000, 2000], [20, 40])
    assert fast.values[0] == pytest.approx(3.0 - 0.055)


def test_the_best_counts_nothing_that_a_restart_took_back(two_runs: Workspace) -> None:
    best = (asked(two_runs, "loss").best or {})["loss"]
    assert (best.run, best.step, best.value) == (FAST, 40, 2.6)
    ranking = (rank_runs(two_runs, ["loss"], limit=5).ranking or {})["loss"]
    assert (ranking.runs, ranking.steps, ranking.values) == ([FAST, SLOW], [40, 40], [2.6, 3.6])


def with_documents(workspace: Workspace, *documents: dict[str, object]) -> list[RunSource]:
    """The two runs, trained by these."""
    views = [load_view(workspace, run) for run in (FAST, SLOW)]
    return [
        RunSource(
            workspace, replace(view, run=replace(view.run, document=document)), view.run.run_id
        )
        for view, document in zip(views, documents, strict=True)
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"method": "dpo", "data": {"fingerprint": "a" * 16}},
        {"method": "pretrain", "data": {"fingerprint": "b" * 16}},
    ],
)
def test_losses_of_different_methods_or_data_have_no_best(
    two_runs: Workspace, other: dict[str, object]
) -> None:
    one = {"method": "pretrain", "data": {"fingerprint": "a" * 16}}
    for keys in (["loss"], ["loss", "tokens_per_s"]):
        answer = compare_metrics(with_documents(two_runs, one, other), keys, 4, selection())
        assert "loss" not in (answer.best or {})
        (note,) = answer.notes or ()
        assert "can't be compared" in note and FAST in note and SLOW in note
        assert ("with other contents" in note) is (other["method"] == "pretrain")
    alike = compare_metrics(with_documents(two_runs, one, one), ["loss"], 4, selection())
    assert (alike.best or {})["loss"].run == FAST and alike.notes is None


def test_a_table_of_runs_that_can_not_be_compared_is_in_the_order_of_the_question(
    two_runs: Workspace,
) -> None:
    documents = ({"method": "pretrain"}, {"method": "dpo"})
    keys = ["loss", "tokens"]
    unlike = list(reversed(with_documents(two_runs, *documents)))
    table = compare_metrics(unlike, keys, 0, selection()).table
    assert table is not None and (table.by, table.runs) == (None, [SLOW, FAST])
    alike = list(reversed(with_documents(two_runs, documents[0], documents[0])))
    table = compare_metrics(alike, keys, 0, selection()).table
    assert table is not None and (table.by, table.runs) == ("loss", [FAST, SLOW])


def test_evaluations_are_never_averaged(two_runs: Workspace) -> None:
    mirror = two_runs.mirror.of(SLOW, 1)
    mirror.append("attempts/2/events.jsonl", b"".join(lines((started(40), *_EVALUATIONS))))
    ingest_placement(two_runs.metrics, mirror, SLOW, 1)
    sources = [RunSource(two_runs, load_view(two_runs, SLOW), SLOW)]
    found = compare_metrics(sources, ["val_loss"], 2, selection()).runs[SLOW]["val_loss"]
    measured = {step: 4.0 - step / 100 for step in range(45, 81, 5)}
    assert {step: measured[step] for step in found.steps} == dict(
        zip(found.steps, found.values, strict=True)
    )
    assert (found.n, found.steps[-1], found.lows) == (8, 80, None)


def test_the_places_of_a_shorter_run_are_steps_that_it_took(two_runs: Workspace) -> None:
    answer = asked(two_runs, "loss", most=3, axis="step", to_step=30)
    assert [answer.runs[run]["loss"].x for run in (FAST, SLOW)] == [
        [float(step) for step in answer.runs[run]["loss"].steps] for run in (FAST, SLOW)
    ]


def test_only_runs_of_one_method_and_data_are_ranked_together(two_runs: Workspace) -> None:
    _add(two_runs, "dpo-abc234", "gpu1", 0.1, method="dpo", sources=["/data/pairs.jsonl"])
    _add(two_runs, "one-abc234", "gpu1", 3.0, method="pretrain", sources=["/data/c4"])
    _add(two_runs, "two-abc234", "gpu2", 2.0, method="pretrain", sources=["/data/c4"])
    ranking = rank_runs(two_runs, ["loss"], limit=5).ranking or {}
    assert [(name, found.runs) for name, found in ranking.items()] == [
        ("loss (pretrain, c4)", ["two-abc234", "one-abc234"]),
        ("loss (dpo, pairs.jsonl)", ["dpo-abc234"]),
        ("loss (None, unknown data, simulated)", [FAST, SLOW]),
    ]
    for among, runs in (
        (Among(host="gpu2"), ["two-abc234"]),
        (Among(label="kind=dpo"), ["dpo-abc234"]),
        (Among(label="kind", framework="nanogpt", host="gpu1"), ["one-abc234"]),
    ):
        chosen = rank_runs(two_runs, ["loss"], limit=5, among=among).ranking or {}
        assert chosen["loss"].runs == runs


def test_runs_of_a_label_are_ranked_with_the_labels_by_which_they_differ(
    two_runs: Workspace,
) -> None:
    for run_id, seed, value in (("one-abc234", "1", 3.0), ("two-abc234", "2", 2.0)):
        _add(two_runs, run_id, "gpu1", value, method="pretrain", sources=["/c4"], seed=seed)
    found = rank_runs(two_runs, ["loss"], limit=5, among=Among(label="seed"))
    assert (found.ranking or {})["loss"].labels == [{"seed": "2"}, {"seed": "1"}]
    assert ranked_runs(found)[1].endswith("of two-abc234 (seed=2)")
    (unasked, *_) = (rank_runs(two_runs, ["loss"], limit=5).ranking or {}).values()
    assert unasked.labels is None


_EVALUATIONS = [
    ("eval", {"step": step, "values": {"val_loss": 4.0 - step / 100}}) for step in range(45, 81, 5)
]


def _add(
    workspace: Workspace,
    run_id: str,
    host: str,
    loss: float,
    *,
    method: str,
    sources: list[str],
    **labels: str,
) -> None:
    document = {
        "steps": 1,
        "method": method,
        "framework": "trl" if method == "dpo" else "nanogpt",
        "data": {"sources": [{"path": path} for path in sources]},
    }
    given = {"kind": method, **labels}
    run = Run(run_id, run_id, 1.0, host, "", document, {}, given, closed=True)
    workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "process", "/x", None)
    mirror = workspace.mirror.of(run_id, 1)
    mirror.append("attempts/1/events.jsonl", b"".join(lines((started(0), metric(1, loss)))))
    mirror.append("supervisor.jsonl", b"".join(lines((attempt_starting(1),))))
    ingest_placement(workspace.metrics, mirror, run_id, 1)


def test_a_range_a_point_and_a_rate_are_those_of_the_steps(two_runs: Workspace) -> None:
    part = asked(two_runs, "loss", most=None, from_step=5, to_step=7).runs[SLOW]["loss"]
    assert (part.steps, part.values) == ([5, 6, 7], [3.95, 3.94, 3.93])
    assert asked(two_runs, "loss", at=1000).runs[SLOW]["loss"].steps == [40]
    rate = asked(two_runs, "tokens", rate="step").runs[FAST]["tokens"]
    assert rate.values == [100.0] * len(rate.values)


def test_telemetry_is_chosen_by_time_alone(two_runs: Workspace) -> None:
    whole = asked(two_runs, "gpu_util", most=None).runs[SLOW]["gpu_util"]
    assert whole.steps[0] == round((FIRST_T + 1) * 1000)
    with pytest.raises(UsageError, match="by time"):
        asked(two_runs, "gpu_util", from_step=3)


def test_a_moving_average_of_equal_values_is_that_value_from_its_first_point() -> None:
    smoothed = moving_average([(n, None, 5.0) for n in range(4)] + [(4, None, float("nan"))], 0.9)
    assert [value for _, _, value in smoothed[:4]] == pytest.approx([5.0] * 4)
    assert smoothed[4][2] != smoothed[4][2]


@pytest.mark.parametrize(
    "part", [{"ema": 1.0}, {"from_step": 9, "to_step": 3}, {"at": 3, "ema": 0.5}, {"since": "soon"}]
)
def test_parts_that_make_no_sense_are_refused(part: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        selection(**part)  # type: ignore[arg-type]


def test_rates_name_no_best_run_and_are_rounded(
    two_runs: Workspace,
) -> None:
    answer = asked(two_runs, "loss", rate="step")
    assert answer.best is None
    assert answer.runs[SLOW]["loss"].values == [-0.01] * 4


def test_since_counts_from_now_where_a_run_is_active_however_old_its_points_are(
    two_runs: Workspace,
) -> None:
    view = load_view(two_runs, SLOW)
    source = RunSource(two_runs, replace(view, now=FIRST_T + 60.0), SLOW)
    whole = source.series("loss").whole()
    assert whole is not None and whole.last_t is not None and not view.ended
    source = RunSource(two_runs, replace(view, now=whole.last_t + 60.0), SLOW)
    for since, n in (("59s", 0), ("60s", 1)):
        (series,) = (
            compare_metrics([source], ["loss"], 4, selection(since=since)).runs[SLOW].values()
        )
        assert series.n == n


def test_a_summary_shares_its_room_among_the_series(two_runs: Workspace) -> None:
    series = asked(two_runs, "loss", most=0).runs[FAST]["loss"]
    assert (len(series.values), series.n) == (3, 40)


def test_a_summary_of_many_series_is_a_table_of_their_last_values(two_runs: Workspace) -> None:
    answer = asked(two_runs, "tokens", "loss", most=0)
    assert answer.runs == {} and answer.table is not None
    assert answer.table.model_dump() == {
        "by": "loss",
        "runs": [FAST, SLOW],
        "last": {"tokens": [4000, 2000], "loss": [2.6, 3.6]},
    }
    assert asked(two_runs, "tokens", "loss", most=1).table is None


def test_a_table_leaves_out_digits_and_then_the_worst_runs() -> None:
    def series(at: int) -> dict[str, MetricSeries]:
        values = {f"metric_{n}": at + n / 7 for n in range(9)} | {"loss": 3 - at / 7, "lr": 0.01}
        return {
            key: MetricSeries(n=1, last=value, steps=[], values=[]) for key, value in values.items()
        }

    few = last_values({f"run-{at}": series(at) for at in range(3)})
    assert few.same == {"lr": 0.01} and few.omitted is None
    assert (few.runs[0], few.last["loss"][0]) == ("run-2", 2.714)
    many = last_values({f"run-{at}": series(at) for at in range(12)})
    assert many.runs[0] == "run-11" and many.omitted == 12 - len(many.runs) > 0
    assert many.last["loss"][0] == 1.43
