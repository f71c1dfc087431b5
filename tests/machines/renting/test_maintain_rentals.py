"""Maintenance of rented instances by ticks, and by a server's first use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected
from support.providers.runpod_site import RunPodSite
from support.providers.site import Fault
from support.runs.running_run import CommandLine, run_async, wait_until

from trainmaster.keeper.tick import tick
from trainmaster.machines.clouds import InstanceRequest, open_cloud
from trainmaster.settings.settings import Settings
from trainmaster.store.control.instances import RentedInstance, RentState
from trainmaster.sync.keeper_state import read_last_tick
from trainmaster.sync.workspace import Workspace

DISK_GIB = 10


@pytest.fixture
def site(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPodSite]:
    """A RunPod stand-in without SSH, configured in this home's settings."""
    with RunPodSite() as opened:
        opened.modes.has_sshd = False
        home.mkdir()
        (home / "settings.yaml").write_text(f"cloud_urls: {{runpod: '{opened.url}'}}\n")
        monkeypatch.setenv("RUNPOD_API_KEY", opened.account_key)
        yield opened


def record(
    workspace: Workspace, tag: str, provider: str = "runpod", **changes: float
) -> RentedInstance:
    """Record an instance as ready."""
    now = time.time()
    instance = RentedInstance(
        f"tm-{workspace.control.instances.home_id()}-{tag}",
        tag,
        provider,
        RentState.READY,
        f"pod-{tag}",
        now - 3600.0,
        changes.get("lease_end_t", now + 3600.0),
        1.0,
        10.0,
        created_t=now - 3600.0,
        ready_t=now - 60.0,
    )
    return workspace.control.instances.add(instance)


async def create(site: RunPodSite, workspace: Workspace, tag: str) -> str:
    """Create an instance at the provider; returns its id."""
    settings = Settings(cloud_urls={"runpod": site.url})
    key = {"RUNPOD_API_KEY": site.account_key}
    cloud = open_cloud("runpod", workspace.home, settings, key)
    try:
        offer = await cloud.offer("nvidia-geforce-rtx-4090:1x:secure", DISK_GIB)
        assert offer is not None
        return await cloud.create(offer, InstanceRequest(tag, "ssh-ed25519 AAAA", DISK_GIB, 5.0))
    finally:
        await cloud.disconnect()


@pytest.mark.slow
def test_one_failing_instance_does_not_stop_the_others(
    site: RunPodSite, workspace: Workspace
) -> None:
    without_key = record(workspace, "aaaaaa", "lambda")
    gone = record(workspace, "bbbbbb")
    answer = run_async(lambda: tick(workspace))
    did = {row.instance: row.did for row in answer.instances or ()}
    assert did[without_key.tag][0].startswith("CLOUD_KEY_MISSING")
    assert gone.tag in did
    left = [instance.tag for instance in workspace.control.instances.all(only_open=True)]
    assert left == [without_key.tag]
    ticked = read_last_tick(workspace.home)
    assert ticked is not None
    assert without_key.tag in ticked.failed


@pytest.mark.slow
def test_a_failed_list_closes_no_instance(site: RunPodSite, workspace: Workspace) -> None:
    instance = record(workspace, "aaaaaa")
    for kind in ("list", "instance"):
        site.fail(kind, Fault(how="status", status=401), times=9)
    answer = run_async(lambda: tick(workspace))
    assert any(row.did[0].startswith("CLOUD_KEY_REFUSED") for row in answer.instances or ())
    assert [one.tag for one in workspace.control.instances.all(only_open=True)] == [instance.tag]


def test_an_orphan_is_reported_and_not_ended(site: RunPodSite, workspace: Workspace) -> None:
    tag = f"tm-{workspace.control.instances.home_id()}-cccccc"
    run_async(lambda: create(site, workspace, tag))
    answer = run_async(lambda: tick(workspace))
    assert {row.instance: row.did for row in answer.instances or ()} == {
        tag: [f"has no record here, and costs money: `trainmaster release {tag}`"]
    }
    assert len(site.alive) == 1


@pytest.mark.slow
def test_a_tick_releases_an_instance_whose_lease_has_ended(
    site: RunPodSite, workspace: Workspace, command: CommandLine
) -> None:
    instance = record(workspace, "dddddd", lease_end_t=time.time() - 1.0)
    provider_id = run_async(lambda: create(site, workspace, instance.tag))
    workspace.control.instances.change(instance.tag, provider_id=provider_id)
    answer = command("tick")
    assert {"instance": instance.tag, "did": ["is released: lease_over"]} in answer["instances"]
    wait_until(
        lambda: not workspace.control.instances.all(only_open=True), "the end of the instance"
    )
    assert site.alive == []


@pytest.mark.long
@pytest.mark.slow
def test_a_lease_ends_though_nothing_of_any_run_can_be_read(
    site: RunPodSite, workspace: Workspace, command: CommandLine
) -> None:
    instance = record(workspace, "ffffff", lease_end_t=time.time() - 1.0)
    provider_id = run_async(lambda: create(site, workspace, instance.tag))
    workspace.control.instances.change(instance.tag, provider_id=provider_id)
    workspace.home.metrics_db.mkdir()  # so that its process fails as soon as it opens it
    answer = command("tick", code=1)
    assert {"instance": instance.tag, "did": ["is released: lease_over"]} in answer["instances"]
    assert answer["failed"]["runs"].startswith("ROOT_NOT_WRITABLE")
    wait_until(
        lambda: not workspace.control.instances.all(only_open=True), "the end of the instance"
    )
    assert site.alive == []


def test_a_home_without_rentals_asks_no_provider(workspace: Workspace) -> None:
    assert run_async(lambda: tick(workspace)).instances is None


@pytest.mark.slow
def test_a_server_maintains_instances_at_its_first_use(
    site: RunPodSite, workspace: Workspace, home: Path
) -> None:
    record(workspace, "eeeeee")
    environment = {"TRAINMASTER_HOME": str(home)}

    async def use(**options: bool) -> None:
        async with connected(environment, **options) as client:
            await answer_of(client, "list_runs")
            if not options:
                with anyio.fail_after(60):
                    while workspace.control.instances.all(only_open=True):
                        await anyio.sleep(0.01)

    anyio.run(lambda: use(read_only=True))
    assert workspace.control.instances.all(only_open=True)
    assert site.asked == []
    anyio.run(use)


def test_calls_do_not_wait_for_a_hanging_provider(site: RunPodSite, home: Path) -> None:
    site.fail("list", Fault(how="hang"), times=9)

    async def use() -> None:
        async with connected({"TRAINMASTER_HOME": str(home)}) as client:
            await answer_of(client, "list_runs")
            with anyio.fail_after(60):
                while not site.count("list"):
                    await anyio.sleep(0.01)
            await answer_of(client, "list_runs")

    anyio.run(use)
