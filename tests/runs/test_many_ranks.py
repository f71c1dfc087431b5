"""Sixty-four ranks, simulated by their log: read on the host, followed, ingested and answered."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.core.journal_records import attempt_starting, lines, state
from support.runs.running_run import run_async
from support.sync.followed_run import HOST, FakeRun, FollowedWorkspace

from trainer_runtime.core.protocol.lines import decode, encode
from trainer_runtime.host.attach.log_events import LogEvents
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.watch.watcher import Watch
from trainmaster.backends.hosts import LocalHost
from trainmaster.cli.views.blocks import view
from trainmaster.home.paths import Home
from trainmaster.runs.metrics.query_metrics import query_metrics
from trainmaster.runs.status.status import get_status
from trainmaster.sync.follow import catch_up

RANKS, STEPS, SLOW = 64, 40, 41
FIRST_T = 1.79e9
JOURNAL = "supervisor.jsonl"


@pytest.fixture
def workspace(home: Path) -> Iterator[FollowedWorkspace]:
    opened = FollowedWorkspace(Home(home), LocalHost(HOST, home / "box"))
    yield opened
    opened.close()


@pytest.fixture
def run(workspace: FollowedWorkspace) -> FakeRun:
    return FakeRun(workspace, workspace.home.root / "box" / "runs" / "ranks-abc234")


def log_of_ranks(seed: int = 7) -> str:
    """Every rank's lines, in its own order, as 64 writers mix them."""
    chosen = random.Random(seed)
    written = [
        (
            step + chosen.uniform(0, 0.99),
            f"[rank{rank}]: step: {step} loss: {3 - step / 100 + rank / 1e4:.4f} "
            f"step_time: {0.8 if rank == SLOW else 0.5 + chosen.uniform(0, 0.01):.4f}\n",
        )
        for step in range(STEPS)
        for rank in range(RANKS)
    ]
    return "".join(text for _, text in sorted(written, key=lambda one: one[0]))


def train(run: FakeRun) -> None:
    """What the host's side makes of the log: events, findings and the journal."""
    journal = lines([attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running")])
    run.write(JOURNAL, b"".join(journal))
    box = RunFolder(run.folder)
    attempt = box.attempt(1)
    attempt.train_log.write_text(log_of_ranks())
    reader = LogEvents(attempt, lambda: FIRST_T)
    while reader.advance(live=False):
        pass
    reader.finish()
    reader.close()
    written = len(journal)

    def write(kind: str, fields: Mapping[str, object]) -> None:
        nonlocal written
        written += 1
        run.write(JOURNAL, encode(written, FIRST_T, kind, dict(fields)))

    watch = Watch(box, write)
    for line in journal:
        watch.feed_event(0, decode(line))
    for line in attempt.events.read_bytes().splitlines():
        watch.feed_event(1, decode(line))
    watch.poll(FIRST_T + 1)


def test_a_slow_rank_of_64_is_found_and_answers_say_how_many_were_aggregated(
    workspace: FollowedWorkspace, run: FakeRun
) -> None:
    train(run)
    run_async(lambda: catch_up(workspace, HOST))
    status = run_async(lambda: get_status(workspace, run.run_id))
    assert status.ranks is not None
    assert (status.ranks.aggregated, status.ranks.slowest) == (RANKS, SLOW)
    assert status.ranks.behind == pytest.approx(1.6, abs=0.05)
    assert "slow_rank" in {finding.code for finding in status.findings}
    keys = ["loss", "loss/ranks_min", "loss/ranks_max", "step_time_s/ranks_slowest"]
    answer = run_async(lambda: query_metrics(workspace, [run.run_id], keys=keys))
    found = answer.runs[run.run_id]
    assert {key: series.n for key, series in found.items()} == dict.fromkeys(keys, STEPS)
    assert found["loss/ranks_max"].last == pytest.approx(3 - 0.39 + 63 / 1e4)
    assert found["loss/ranks_min"].last == pytest.approx(3 - 0.39)
    assert found["step_time_s/ranks_slowest"].last == SLOW
    assert any(f"of one of {RANKS} ranks" in note for note in answer.notes or [])
    assert any(f"{RANKS} aggregated" in str(block) for block in view(status))
