"""A run that outlives its instance: rented, lost, continued on another one, released."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.machines.rental_home import Renter, renting
from support.providers.runpod_site import RunPodSite
from support.runs.light_run import lasting, light_spec
from support.runs.running_run import wait_until

from trainmaster.answers.runs import LaunchAnswer, WaitAnswer
from trainmaster.answers.status import StatusAnswer
from trainmaster.errors.errors import StateError
from trainmaster.machines.renting.instances import advance_instance
from trainmaster.metrics.run_series import run_points
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.resume.resume import resume
from trainmaster.runs.status.status import get_status
from trainmaster.runs.stop import stop
from trainmaster.runs.upkeep.maintain import maintaining
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

BOUND_S = 240.0


async def moved(workspace: Workspace, run: str, host: str) -> LaunchAnswer:
    return await resume(workspace, run, host=host, refresh_instance=advance_instance)


@pytest.fixture
def renter(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    with RunPodSite() as site, renting(home, site, monkeypatch) as rented:
        yield rented


@pytest.mark.long  # test_renting_faces rents and releases; test_checkpoint_mirror mirrors
def test_a_run_continues_from_the_mirror_on_a_new_instance_after_a_loss(
    renter: Renter, tmp_path: Path
) -> None:
    first = renter.provision()
    run = start_training(renter, tmp_path, first.host)
    until_event(renter, run, "checkpoint")
    wait_until(lambda: mirrored(renter, run), "a checkpoint in the mirror", BOUND_S)
    with pytest.raises(StateError, match="RUN_IS_RUNNING"):
        renter.do(
            lambda workspace: resume(
                workspace, run, host="local", refresh_instance=advance_instance
            )
        )

    renter.site.alive[0].end()  # as its provider does for a higher bid
    second = renter.provision()
    saved = mirrored(renter, run)[-1]
    resumed = renter.do(
        lambda workspace: resume(
            workspace, run, host=second.host, refresh_instance=advance_instance
        )
    )
    assert resumed.host == second.host
    assert [instance.state.value for instance in renter.instances()] == ["ended", "ready"]

    until_event(renter, run, "checkpoint", resumed.cursor)
    renter.do(lambda workspace: stop(workspace, run))
    until_event(renter, run, "stopped")
    steps = [step for step, _ in renter.do(lambda workspace: losses(workspace, run))]
    assert steps == list(range(1, steps[-1] + 1))
    assert (status(renter, run).state, status(renter, run).attempt) == ("stopped", 2)
    assert started_at(renter, run) == saved

    released = renter.release(second.host)
    assert (released.state, released.mirrored) == ("ended", [run])
    assert renter.site.alive == []
    last = status(renter, run)
    assert last.checkpoint is not None
    assert last.checkpoint.mirrored_step == last.step == steps[-1]


def start_training(renter: Renter, folder: Path, host: str) -> str:
    """Launch a small endless training with a local mirror."""
    changes = {"steps": "100000", "checkpoint": "{mirror: operator}"}
    spec = folder / "spec.yaml"
    spec.write_text(light_spec(folder, "--every", "50", *lasting(), **changes))
    return renter.do(lambda workspace: launch(workspace, str(spec), host=host)).run_id


def until_event(renter: Renter, run: str, event: str, cursor: str | None = None) -> None:
    async def wait(workspace: Workspace) -> WaitAnswer:
        async with maintaining(workspace, run):
            return await wait_for_event(
                workspace, run, until=[event], timeout_s=BOUND_S, cursor=cursor
            )

    answer = renter.do(wait)
    assert answer.event == event, answer


def status(renter: Renter, run: str) -> StatusAnswer:
    return renter.do(lambda workspace: get_status(workspace, run))


def mirrored(renter: Renter, run: str) -> list[int]:
    """The steps of the checkpoints in the local mirror."""
    folder = renter.home / "mirror" / run / "p1" / "checkpoints"
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))


async def losses(workspace: Workspace, run: str) -> list[tuple[int, float]]:
    return run_points(workspace, load_view(workspace, run), "loss")


def started_at(renter: Renter, run: str) -> int:
    """The first step of the second attempt, from its events."""
    events = renter.home / "mirror" / run / "p2" / "attempts" / "2" / "events.jsonl"
    first = next(line for line in events.read_text().splitlines() if '"kind":"started"' in line)
    return int(json.loads(first)["step"])
