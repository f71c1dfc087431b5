"""What ticks and a server's first use do for rented boxes."""

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
from trainmaster.machines.clouds import BoxRequest, open_cloud
from trainmaster.store.control_instances import RentedBox, RentState
from trainmaster.sync.keeper_state import read_last_tick
from trainmaster.sync.workspace import Workspace
from trainmaster.words.settings import Settings

DISK_GIB = 10


@pytest.fixture
def site(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPodSite]:
    """RunPod, whose boxes answer no SSH, as this home's settings reach it."""
    with RunPodSite() as opened:
        opened.modes.has_sshd = False
        home.mkdir()
        (home / "settings.yaml").write_text(f"cloud_urls: {{runpod: '{opened.url}'}}\n")
        monkeypatch.setenv("RUNPOD_API_KEY", opened.account_key)
        yield opened


def record(workspace: Workspace, tag: str, provider: str = "runpod", **changes: float) -> RentedBox:
    """A box that is ready, by the records."""
    now = time.time()
    box = RentedBox(
        f"tm-{workspace.control.boxes.home_id()}-{tag}",
        tag,
        provider,
        RentState.READY,
        f"pod-{tag}",
        now - 3600.0,
        changes.get("lease_end_t", now + 3600.0),
        1.0,
        10.0,
        body={"created_t": now - 3600.0, "ready_t": now - 60.0},
    )
    return workspace.control.boxes.add(box)


async def create(site: RunPodSite, workspace: Workspace, tag: str) -> str:
    """A box at the provider; its id there."""
    settings = Settings(cloud_urls={"runpod": site.url})
    key = {"RUNPOD_API_KEY": site.account_key}
    cloud = open_cloud("runpod", workspace.home, settings, key)
    try:
        offer = await cloud.offer("nvidia-geforce-rtx-4090:1x:secure", DISK_GIB)
        assert offer is not None
        return await cloud.create(offer, BoxRequest(tag, "ssh-ed25519 AAAA", DISK_GIB, 5.0))
    finally:
        await cloud.disconnect()


def test_a_box_that_fails_stops_no_other(site: RunPodSite, workspace: Workspace) -> None:
    without_key = record(workspace, "aaaaaa", "lambda")
    gone = record(workspace, "bbbbbb")
    answer = run_async(lambda: tick(workspace))
    did = {row.box: row.did for row in answer.boxes or ()}
    assert did[without_key.tag][0].startswith("CLOUD_KEY_MISSING")
    assert gone.tag in did
    left = [box.tag for box in workspace.control.boxes.boxes(only_open=True)]
    assert left == [without_key.tag]
    ticked = read_last_tick(workspace.home)
    assert ticked is not None
    assert without_key.tag in ticked.failed


def test_nothing_is_concluded_from_a_provider_that_gives_no_list(
    site: RunPodSite, workspace: Workspace
) -> None:
    box = record(workspace, "aaaaaa")
    for kind in ("list", "box"):
        site.fail(kind, Fault(how="status", status=401), times=9)
    answer = run_async(lambda: tick(workspace))
    assert any(row.did[0].startswith("CLOUD_KEY_REFUSED") for row in answer.boxes or ())
    assert [one.tag for one in workspace.control.boxes.boxes(only_open=True)] == [box.tag]


def test_a_box_that_no_record_knows_is_told_and_left_alone(
    site: RunPodSite, workspace: Workspace
) -> None:
    tag = f"tm-{workspace.control.boxes.home_id()}-cccccc"
    run_async(lambda: create(site, workspace, tag))
    answer = run_async(lambda: tick(workspace))
    assert {row.box: row.did for row in answer.boxes or ()} == {
        tag: [f"is on no record here, and costs: `trainmaster release {tag}`"]
    }
    assert len(site.alive) == 1


def test_a_tick_gives_back_a_box_whose_lease_is_over(
    site: RunPodSite, workspace: Workspace, command: CommandLine
) -> None:
    box = record(workspace, "dddddd", lease_end_t=time.time() - 1.0)
    provider_id = run_async(lambda: create(site, workspace, box.tag))
    workspace.control.boxes.change(box.tag, provider_id=provider_id)
    answer = command("tick")
    assert {"box": box.tag, "did": ["is given back: lease_over"]} in answer["boxes"]
    wait_until(lambda: not workspace.control.boxes.boxes(only_open=True), "the end of the box")
    assert site.alive == []


def test_a_home_that_rents_nothing_asks_nobody(workspace: Workspace) -> None:
    assert run_async(lambda: tick(workspace)).boxes is None


def test_a_server_looks_after_boxes_when_it_is_first_used(
    site: RunPodSite, workspace: Workspace, home: Path
) -> None:
    record(workspace, "eeeeee")
    environment = {"TRAINMASTER_HOME": str(home)}

    async def use(**options: bool) -> None:
        async with connected(environment, **options) as client:
            await answer_of(client, "list_runs")
            if not options:
                with anyio.fail_after(60):
                    while workspace.control.boxes.boxes(only_open=True):
                        await anyio.sleep(0.01)

    anyio.run(lambda: use(read_only=True))
    assert workspace.control.boxes.boxes(only_open=True)
    assert site.asked == []
    anyio.run(use)


def test_a_call_does_not_wait_for_a_provider_that_hangs(site: RunPodSite, home: Path) -> None:
    site.fail("list", Fault(how="hang"), times=9)

    async def use() -> None:
        async with connected({"TRAINMASTER_HOME": str(home)}) as client:
            await answer_of(client, "list_runs")
            with anyio.fail_after(60):
                while not site.count("list"):
                    await anyio.sleep(0.01)
            await answer_of(client, "list_runs")

    anyio.run(use)
