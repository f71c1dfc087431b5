"""Network volumes and kept instances: what outlives an instance, what it costs, what ends it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.machines.rental_home import OFFERS, Renter, renting
from support.mcp.mcp_client import answer_of, connected, error_of
from support.providers.lambda_site import LambdaSite
from support.providers.runpod_site import RunPodSite
from support.providers.site import Fault, Site
from support.providers.vast_site import VastSite
from support.runs.light_run import lasting, light_spec
from support.runs.running_run import wait_until

from trainmaster.cli import run
from trainmaster.machines.renting.factory import cloud_factory
from trainmaster.machines.renting.maintain_rentals import maintain_instances
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.resume.resume import resume
from trainmaster.runs.stop import stop
from trainmaster.runs.upkeep.maintain import maintaining
from trainmaster.sync.workspace import Workspace

Command = Callable[..., dict[str, Any]]
OFFER = OFFERS["runpod"]
NEW_VOLUME = ("--volume", "data:20:2")
BOUND_S = 240.0


@pytest.fixture
def site() -> Iterator[RunPodSite]:
    with RunPodSite() as site:
        yield site


@pytest.fixture
def renter(home: Path, site: RunPodSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    with renting(home, site, monkeypatch) as rented:
        yield rented


@pytest.fixture
def run_json(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command with --json; returns its answer, or its error."""

    def call(*arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        code = run([*arguments, "--json"])
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert (code == 0) is ("error" not in answer), answer
        return answer.get("error", answer)

    return call


def rent(run_json: Command, *more: str, hours: str = "1") -> dict[str, Any]:
    return run_json("provision", OFFER, "--hours", hours, *more, "--yes")


@pytest.mark.long
def test_a_run_continues_on_the_next_instance_with_its_volume_from_what_lies_there(
    renter: Renter, site: RunPodSite, run_json: Command, tmp_path: Path
) -> None:
    first = rent(run_json, *NEW_VOLUME)
    assert first["state"] == "ready", first
    training = start_training(renter, tmp_path, first["host"])
    until_event(renter, training, "checkpoint")
    renter.do(lambda workspace: stop(workspace, training))
    until_event(renter, training, "stopped")
    assert run_json("release", "data", "--yes", "--force")["code"] == "VOLUME_IN_USE"
    assert run_json("release", first["host"], "--yes")["state"] == "ended"

    [attention] = [line for line in run_json("overview")["attention"] if "volume data" in line]
    assert "no instance uses it" in attention and "holds checkpoints of" in attention
    refused = run_json("release", "data", "--yes")
    assert refused["code"] == "VOLUME_HOLDS_CHECKPOINTS" and "--force" in refused["fix"]
    [volume] = site.volumes.values()
    there = sorted(path.name for path in (volume.folder / "trainmaster" / "cache").iterdir())

    renter.do(lease_of_volume_ends)
    assert len(site.volumes) == 1
    [attention] = [line for line in run_json("overview")["attention"] if "volume data" in line]
    assert "its lease is over" in attention
    assert rent(run_json, "--volume", "data")["field"] == "volume"

    second = rent(run_json, "--volume", "data::2")
    assert (second["state"], second["host"]) == ("ready", first["host"])
    assert second["instance"] != first["instance"] and len(site.volumes) == 1
    cache = volume.folder / "trainmaster" / "cache"
    assert there and set(there) <= {path.name for path in cache.iterdir()}
    saved = last_saved(volume.folder, training)
    resumed = renter.do(lambda workspace: resume(workspace, training))
    until_event(renter, training, "checkpoint", resumed.cursor)
    assert started_at(volume.folder, training) == saved > 0
    renter.do(lambda workspace: stop(workspace, training))
    until_event(renter, training, "stopped")
    assert run_json("release", second["host"], "--yes")["state"] == "ended"
    assert run_json("release", "data", "--yes", "--force")["state"] == "ended"
    assert (site.volumes, site.alive) == ({}, [])


def test_a_volume_is_quoted_listed_counted_and_released_on_both_faces(
    renter: Renter, site: RunPodSite, run_json: Command
) -> None:
    site.modes.has_sshd = False
    wanted = {"offer": OFFER, "hours": 1.0, "volume": "data:100", "keep": True}

    async def call(answer: Any, tool: str, **arguments: Any) -> Any:
        async with connected(renter.environment) as client:
            return await answer(client, tool, **arguments)

    quoted = anyio.run(lambda: call(error_of, "provision", **wanted))
    assert "CONFIRMATION_REQUIRED" in quoted
    for part in ("a new volume data (100 GB at runpod, US-TX-3)", "$7.00 a month", "$1.63 more",
                 "is kept for further runs", "unfinished runs"):  # fmt: skip
        assert part in quoted, quoted
    approval = quoted.partition(" approve ")[2].partition("`")[0]
    assert run(["approve", approval, "--yes"]) == 0
    begun = anyio.run(lambda: call(answer_of, "provision", **wanted))
    wait_until(lambda: site.volumes and site.alive, "the volume and the instance")
    costs = run_json("costs")
    [row] = costs["volumes"]
    shown = (row["volume"], row["size_gb"], row["region"], row["used_by"], row["usd_per_month"])
    assert shown == ("data", 100, "US-TX-3", begun["host"], 7.0)
    assert costs["instances"][0]["keep"] is True
    assert costs["committed_usd"] == pytest.approx(0.697 + 100 * 0.07 / 720 * 168, abs=0.01)
    [mount] = [one.body["mounts"] for one in site.alive]
    assert mount == {"network": {"volumeId": next(iter(site.volumes)), "path": "/mnt/volume"}}
    assert rent(run_json, "--volume", "data")["code"] == "VOLUME_IN_USE"
    assert run_json("release", begun["host"], "--yes")["state"] == "ended"

    rows = {row["name"]: row for row in run_json("doctor")["checks"]}
    assert rows["volume data"]["state"] == "warn"
    assert "$7.00 a month, unused" in rows["volume data"]["found"]
    hosts = anyio.run(lambda: call(answer_of, "list_hosts"))
    assert [one["volume"] for one in hosts["volumes"]] == ["data"]
    assert [one["volume"] for one in run_json("hosts")["volumes"]] == ["data"]
    assert run_json("costs")["committed_usd"] == pytest.approx(1.63, abs=0.01)
    asked = anyio.run(lambda: call(error_of, "release", instance="data"))
    assert "CONFIRMATION_REQUIRED" in asked and "Delete the volume data" in asked
    approval = asked.partition(" approve ")[2].partition("`")[0]
    assert run(["approve", approval, "--yes"]) == 0
    released = anyio.run(lambda: call(answer_of, "release", instance="data"))
    assert (released["state"], site.volumes) == ("ended", {})
    assert run_json("hosts").get("volumes") is None


def test_a_volume_that_costs_more_than_a_cap_or_outlives_it_is_refused(
    renter: Renter, site: RunPodSite, run_json: Command
) -> None:
    settings = renter.home / "settings.yaml"
    settings.write_text(f"{settings.read_text()}max_usd_total: 2\nmax_volume_days: 10\n")
    refused = rent(run_json, "--volume", "data:100")
    assert (refused["code"], refused["field"]) == ("SPEND_CAP", "max_usd_total")
    refused = rent(run_json, "--volume", "data:10:11")
    assert (refused["code"], refused["field"]) == ("SPEND_CAP", "max_volume_days")
    for volume in ("data", "data:5", "data:x", "data:10:0.01", "data:10:2:3", "data:nan"):
        refused = rent(run_json, "--volume", volume)
        assert (refused["code"], refused["field"]) == ("BAD_ARGUMENT", "volume"), volume
    assert rent(run_json, "--volume", "data:10", "--root", "/x")["field"] == "root"
    assert (site.count("create"), site.count("volume")) == (0, 0)


@pytest.mark.parametrize(
    ("provider", "make", "reason"),
    [("vast", VastSite, "lie on one machine"), ("lambda", LambdaSite, "no quote could hold")],
)
def test_a_provider_without_volumes_says_why(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_json: Command,
    provider: str,
    make: Callable[..., Site],
    reason: str,
) -> None:
    with make() as site, renting(home, site, monkeypatch, provider):
        words = ("provision", OFFERS[provider], "--hours", "1", *NEW_VOLUME, "--yes")
        refused = run_json(*words)
        assert refused["code"] == "VOLUME_UNSUPPORTED" and reason in refused["message"]
        assert site.count("create") == 0


def test_a_lost_reply_to_the_request_for_a_volume_makes_no_second_one(
    renter: Renter, site: RunPodSite, run_json: Command
) -> None:
    site.modes.has_sshd = False
    site.fail("volume", Fault("lost", after=True))
    assert rent(run_json, *NEW_VOLUME, "--no-wait")["state"] in ("intended", "created")
    wait_until(lambda: site.alive, "the instance")
    assert (len(site.volumes), site.count("volume")) == (1, 1)
    [row] = run_json("costs")["volumes"]
    assert row["state"] == "ready"


def test_the_end_of_a_volumes_lease_deletes_it_unless_an_instance_uses_it(
    renter: Renter, site: RunPodSite, run_json: Command
) -> None:
    site.modes.has_sshd = False
    begun = rent(run_json, *NEW_VOLUME, "--no-wait")
    wait_until(lambda: site.alive, "the instance")
    renter.do(lease_of_volume_ends)
    assert len(site.volumes) == 1
    assert run_json("release", begun["host"], "--yes")["state"] == "ended"
    renter.do(lease_of_volume_ends)
    assert site.volumes == {}
    [row] = run_json("costs")["volumes"]
    assert (row["state"], row["reason"]) == ("ended", "lease_over")


def test_a_volume_without_a_record_is_listed_and_deleted_by_its_tag(
    renter: Renter, site: RunPodSite, run_json: Command
) -> None:
    tag = "tm-abcdef-orphan"
    make_volume(renter, tag)
    assert run_json("costs").get("orphans") is None
    [orphan] = run_json("costs", "--refresh")["orphans"]
    shown = (orphan["instance"], orphan["size_gb"], orphan["of_this_home"])
    assert shown == (tag, 20.0, False) and orphan["usd_per_h"] > 0
    refused = run_json("release", tag)
    assert refused["code"] == "CONFIRMATION_REQUIRED" and "All data on it" in refused["message"]
    assert run_json("release", tag, "--yes")["state"] == "ended"
    assert site.volumes == {}


def test_a_volume_that_appears_after_its_record_was_closed_is_on_record_again(
    renter: Renter, site: RunPodSite, run_json: Command
) -> None:
    site.modes.has_sshd = False
    begun = rent(run_json, *NEW_VOLUME, "--no-wait")
    wait_until(lambda: site.alive, "the instance")
    assert run_json("release", begun["host"], "--yes")["state"] == "ended"
    hidden = dict(site.volumes)
    site.volumes.clear()
    assert run_json("release", "data", "--yes")["state"] == "ended"
    site.volumes.update(hidden)
    answer = run_json("costs", "--refresh")
    assert (answer["volumes"][0]["state"], answer.get("orphans")) == ("releasing", None)
    assert run_json("release", "data")["state"] == "ended"  # agreed to before
    assert site.volumes == {}


def make_volume(renter: Renter, tag: str) -> None:
    """As another home of the account would."""

    async def create(workspace: Workspace) -> None:
        cloud = cloud_factory(workspace, None)("runpod")
        await cloud.volume_store().create(tag, 20, "US-TX-3")
        await cloud.disconnect()

    renter.do(create)


async def lease_of_volume_ends(workspace: Workspace) -> None:
    volume = workspace.control.volumes.find("data")
    assert volume is not None
    workspace.control.volumes.change(volume.tag, lease_end_t=time.time() - 1)
    await maintain_instances(workspace)


def start_training(renter: Renter, folder: Path, host: str) -> str:
    """Launch a small endless training whose checkpoints lie on the host alone."""
    changes = {"steps": "100000", "checkpoint": "{mirror: none}"}
    spec = folder / "spec.yaml"
    spec.write_text(light_spec(folder, "--every", "50", *lasting(), **changes))
    return renter.do(lambda workspace: launch(workspace, str(spec), host=host)).run_id


def until_event(renter: Renter, run_id: str, event: str, cursor: str | None = None) -> None:
    async def wait(workspace: Workspace) -> str | None:
        async with maintaining(workspace, run_id):
            answer = await wait_for_event(
                workspace, run_id, until=[event], timeout_s=BOUND_S, cursor=cursor
            )
        return answer.event

    assert renter.do(wait) == event


def run_folder(volume: Path, run_id: str) -> Path:
    return volume / "trainmaster" / "runs" / run_id


def last_saved(volume: Path, run_id: str) -> int:
    folders = run_folder(volume, run_id).glob("**/step-*")
    return max(int(path.name.removeprefix("step-")) for path in folders if path.is_dir())


def started_at(volume: Path, run_id: str) -> int:
    events = run_folder(volume, run_id) / "attempts" / "2" / "events.jsonl"
    first = next(line for line in events.read_text().splitlines() if '"kind":"started"' in line)
    return int(json.loads(first)["step"])
