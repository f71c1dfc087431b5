"""What one run's host sends, however odd, touches no other run."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.core.journal_records import (
    EventBody,
    attempt_ended,
    attempt_starting,
    evaluation,
    kept,
    lines,
    metric,
    started,
    state,
)
from support.machines.rental_home import renting
from support.machines.rented_instances import expired, rent
from support.providers.runpod_site import RunPodSite
from support.runs.planted_runs import finding
from support.runs.running_run import run_async, wait_until
from support.sync.followed_run import HOST, FakeRun, FollowedWorkspace
from support.sync.hostile_host import HostileHost
from support.sync.mutations import mutated, mutated_line, nested

from trainmaster.home.paths import Home
from trainmaster.keeper.parts import tick_instances, tick_runs
from trainmaster.runs.diagnose import diagnose
from trainmaster.runs.diagnosis.diagnose_run import found_of
from trainmaster.runs.lists.list_runs import list_runs
from trainmaster.runs.status.status import get_status, status_of
from trainmaster.store.control.instances import RentState
from trainmaster.sync.follow import catch_up
from trainmaster.sync.ingest import MOST_REFUSED_LINES, Ingest, MirrorGrowth
from trainmaster.sync.last_pass import last_pass
from trainmaster.sync.replay import replay
from trainmaster.sync.run_view import load_view

pytestmark = pytest.mark.attack

JOURNAL, EVENTS = "supervisor.jsonl", "attempts/1/events.jsonl"
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
MUTANTS = int(os.environ.get("TRAINMASTER_MUTANTS", "200"))
JOURNAL_BODIES: tuple[EventBody, ...] = (
    attempt_starting(1),
    state("preparing", generation=1),
    ("attempt_running", {"attempt": 1}),
    state("running"),
    ("sample", {"values": {"cpu_util": 97.5, "disk_free_gib": 12.0}}),
    finding("0123abcd"),
    ("finding_closed", {"id": "0123abcd"}),
    ("mirrored", {"step": 2}),
    attempt_ended(1, "killed", signal=9, started_at_step=0, last_step=3, last_words="Killed"),
    state("recovering", reason="killed"),
    ("restart_planned", {"due_t": 1.7e9, "why": "killed", "mode": "latest", "candidates": [2],
                         "set": {}, "skip": {"at_step": 2, "sequences": 8}}),
    attempt_starting(2, why="killed"),
)  # fmt: skip
EVENT_BODIES: tuple[EventBody, ...] = (
    started(0, 100),
    metric(1, 3.0, lr=0.1, step_time_s=0.5),
    evaluation(2, 2.75),
    *kept(2, 2.75),
    ("warning", {"code": "nan_loss", "step": 3, "message": "the loss is NaN"}),
    ("phase", {"name": "second"}),
    metric(3, 2.5),
)


@pytest.fixture
def host(home: Path) -> HostileHost:
    return HostileHost(home / "box")


@pytest.fixture
def workspace(home: Path, host: HostileHost) -> Iterator[FollowedWorkspace]:
    opened = FollowedWorkspace(Home(home), host)
    yield opened
    opened.close()


@pytest.fixture
def polled(home: Path, host: HostileHost) -> Iterator[FollowedWorkspace]:
    opened = FollowedWorkspace(Home(home), host, multiplexed=False)
    yield opened
    opened.close()


def placed(workspace: FollowedWorkspace, name: str = "small") -> FakeRun:
    folder = workspace.home.root / "box" / "runs" / f"{name}-abc234"
    return FakeRun(workspace, folder)


def documents(bodies: tuple[EventBody, ...]) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines(bodies)]


def ingest(workspace: FollowedWorkspace, *runs: FakeRun) -> None:
    grown = [MirrorGrowth(run.run_id, 1, run.mirror, None) for run in runs]
    Ingest(workspace.metrics).take_in(grown)


def healthy(workspace: FollowedWorkspace) -> FakeRun:
    run = placed(workspace, "healthy")
    run.mirror.append(JOURNAL, b"".join(lines(JOURNAL_BODIES)))
    run.mirror.append(EVENTS, b"".join(lines(EVENT_BODIES)))
    return run


def codes(workspace: FollowedWorkspace, run: FakeRun) -> set[tuple[str, str]]:
    status = run_async(lambda: get_status(workspace, run.run_id))
    refused = ("host_data_refused", "mirror_quota")
    return {(row.code, row.severity) for row in status.findings if row.code in refused}


def test_a_line_nested_900_deep_is_left_out_with_a_finding(workspace: FollowedWorkspace) -> None:
    run, other = placed(workspace), healthy(workspace)
    first, *rest = lines(JOURNAL_BODIES)
    deep = f'{{"v":1,"seq":1,"t":1.0,"kind":"sample","values":{nested(900)}}}\n'.encode()
    run.mirror.append(JOURNAL, b"".join([first, deep, nested(100_000).encode() + b"\n", *rest]))
    ingest(workspace, run, other)
    listed = {row.run_id: row for row in run_async(lambda: list_runs(workspace)).runs}
    assert listed[run.run_id].state == listed[other.run_id].state
    assert codes(workspace, run) == {("host_data_refused", "warning")}
    assert codes(workspace, other) == set()
    findings = run_async(lambda: diagnose(workspace, run.run_id)).findings
    [found] = [one for one in findings if one.code == "host_data_refused"]
    assert found.evidence == ["supervisor.jsonl: 2 lines; is nested deeper than 16 levels"]


def test_a_file_of_refused_lines_quarantines_its_run_until_it_is_replayed(
    workspace: FollowedWorkspace,
) -> None:
    run, other = healthy(workspace), placed(workspace)
    ingest(workspace, run)
    deep = (nested(900) + "\n").encode() * (MOST_REFUSED_LINES + 1)
    run.mirror.append(EVENTS, deep)
    other.mirror.append(EVENTS, b"".join(lines(EVENT_BODIES)))
    ingest(workspace, run, other)
    assert other.steps() == [1, 3]
    assert codes(workspace, run) == {("host_data_refused", "critical")}
    assert run.steps() == [1, 3]  # the last known state
    run.mirror.append(EVENTS, lines([metric(9)])[0])
    ingest(workspace, run)
    assert run.steps() == [1, 3]
    assert run_async(lambda: replay(workspace, run.run_id)).quarantined == [run.run_id]
    run.mirror.replace(EVENTS, b"".join(lines(EVENT_BODIES)))
    assert run_async(lambda: replay(workspace, run.run_id)).quarantined is None
    assert codes(workspace, run) == set()
    assert run_async(lambda: replay(workspace)).runs == 2


@pytest.fixture
def site(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPodSite]:
    with RunPodSite(has_sshd=False) as site, renting(home, site, monkeypatch):
        yield site


@pytest.mark.long
@pytest.mark.slow
def test_mutated_journals_and_events_harm_no_other_run_and_no_lease(
    workspace: FollowedWorkspace, site: RunPodSite
) -> None:
    print(f"TRAINMASTER_FAULT_SEED={SEED}")
    seed = random.Random(SEED)
    runs = [placed(workspace, f"mutant{number}") for number in range(MUTANTS)]
    well = healthy(workspace)
    for run in runs:
        run.mirror.append(JOURNAL, mutated(documents(JOURNAL_BODIES), seed))
        run.mirror.append(EVENTS, mutated(documents(EVENT_BODIES), seed))
    ingest(workspace, *runs, well)
    over, other = expired(workspace, site, HOST), rent(workspace, "elsewhere")
    assert run_async(lambda: tick_instances(workspace)).failed is None
    answer = run_async(lambda: tick_runs(workspace))
    wait_until(lambda: not site.alive, f"the end of {over.tag}")
    kept = workspace.control.instances.find(other.tag)
    assert kept is not None and kept.state is RentState.READY and kept.release is None
    assert len(answer.runs) == MUTANTS + 1
    assert not [why for why in (answer.failed or {}).values() if "INTERNAL" in why]
    listed = run_async(lambda: list_runs(workspace, limit=MUTANTS + 1))
    assert (len(listed.runs), listed.failed) == (MUTANTS + 1, None)
    assert load_view(workspace, well.run_id).record.attempts[-1].number == 2
    assert codes(workspace, well) == set()
    for run in runs:
        view = load_view(workspace, run.run_id)
        assert status_of(view).model_dump_json()
        assert all(one.answer().model_dump_json() for one in found_of(view))
    for run in runs[:10]:
        run_async(lambda run=run: get_status(workspace, run.run_id, detail=True))
        run_async(lambda run=run: diagnose(workspace, run.run_id, everything=True))


def test_mutated_headers_end_a_pass_and_nothing_else(
    workspace: FollowedWorkspace, host: HostileHost
) -> None:
    print(f"TRAINMASTER_FAULT_SEED={SEED}")
    seed, run = random.Random(SEED), placed(workspace)
    data = b"".join(lines(EVENT_BODIES))
    for _ in range(MUTANTS):
        size = run.mirror.size(EVENTS)
        header = {"run": run.run_id, "file": EVENTS, "at": size, "inode": 7, "n": len(data)}
        end = {"scanned": 1, "now": 1.7e9, "more": False}
        frames = [json.dumps({"frames": [header]}), json.dumps(end)]
        at = seed.randrange(2)
        frames[at] = mutated_line(frames[at], seed)
        first, last = (frame.encode(errors="surrogatepass") for frame in frames)
        host.output = first + b"\n" + data + last + b"\n"
        run_async(lambda: catch_up(workspace, HOST))
        host.output = nested(900).encode() + b"\n"
        run_async(lambda: catch_up(workspace, HOST))
        error = last_pass(workspace.home, HOST).error
        assert error is not None or workspace.metrics.refusals.quarantined()
    assert run_async(lambda: list_runs(workspace)).failed is None


def test_mutated_listings_end_a_pass_and_nothing_else(
    polled: FollowedWorkspace, host: HostileHost
) -> None:
    print(f"TRAINMASTER_FAULT_SEED={SEED}")
    seed, run = random.Random(SEED), placed(polled)
    names = ["1", "2", "²", "0", "-1", "999999999", "1" * 400, "../..", "1\x00", "", "a\nb", "１"]
    for _ in range(min(MUTANTS, 20)):
        host.listed = seed.choices(names, k=seed.randrange(6))
        host.sizes = seed.choices([0, 1, 100, -1, 2**40, 2**70], k=4)
        host.data = seed.randbytes(seed.randrange(300))
        run_async(lambda: catch_up(polled, HOST))
    host.listed = [str(number) for number in range(1, 20_000)]
    run_async(lambda: catch_up(polled, HOST))
    assert codes(polled, run) == {("host_data_refused", "critical")}
    assert run_async(lambda: list_runs(polled)).failed is None
