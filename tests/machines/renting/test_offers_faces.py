"""Offers by command and by tool, from RunPod's API as a stand-in speaks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.host.pty import Terminal
from support.mcp.mcp_client import answer_of, connected, error_of
from support.providers.runpod_site import RunPodSite
from support.providers.site import Fault
from support.runs.running_run import CommandLine


@pytest.fixture
def site(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPodSite]:
    """RunPod, as this home's settings reach it."""
    with RunPodSite() as opened:
        home.mkdir()
        (home / "settings.yaml").write_text(f"cloud_urls: {{runpod: '{opened.url}'}}\n")
        monkeypatch.setenv("RUNPOD_API_KEY", opened.account_key)
        yield opened
    assert opened.violations == []


def test_the_command_and_the_tool_list_the_same_offers(
    site: RunPodSite, command: CommandLine, home: Path
) -> None:
    listed = command("offers", "--gpu", "H100", "--count", "8", "--provider", "runpod")
    offers = listed["offers"]
    assert offers["offer"] == [
        f"runpod:nvidia-h100-80gb-hbm3:8x:{c}" for c in ("community", "secure")
    ]
    assert offers["count"] == [8, 8]
    assert 8 * 2.69 < offers["usd_per_h"][0] < 8 * 2.69 + 0.1  # and its disk
    assert listed["sources"] == {"runpod": f"{site.url}/catalog/gpus"}
    assert f" provision {listed['offers']['offer'][0]} " in listed["next_step"]
    assert site.account_key not in str(listed)

    async def by_tool() -> dict[str, object]:
        async with connected({"TRAINMASTER_HOME": str(home)}) as client:
            return await answer_of(client, "list_offers", gpu="h100", count=8, provider="runpod")

    again = anyio.run(by_tool)
    assert "`provision(offer=" in str(again["next_step"])  # each names what its own face has
    for answer in (listed, again):
        answer["offers"].pop("priced_at")  # type: ignore[attr-defined]
        answer.pop("next_step")
    assert again == listed


@pytest.mark.slow
def test_a_person_sees_prices_with_their_time_and_source(
    site: RunPodSite, command: CommandLine
) -> None:
    process = command.start("offers", "--max-usd-h", "1", "--provider", "runpod")
    seen, _ = process.communicate(timeout=60)
    lines = seen.splitlines()
    assert lines[0].split()[:2] == ["offer", "GPU"]
    assert "1x 4090" in lines[1]
    assert f"from {site.url}/catalog/gpus" in seen
    assert not any("h100" in line for line in lines)


@pytest.mark.slow
def test_an_offer_s_name_stays_whole_on_a_narrow_terminal(
    site: RunPodSite, command: CommandLine
) -> None:
    dumb = {"TERM": "dumb", "NO_COLOR": ""}
    with Terminal(command, "offers", "--provider", "runpod", **dumb) as terminal:
        assert terminal.end() == 0, terminal.shown
    for name in ("h100-80gb-hbm3:1x:community", "geforce-rtx-4090:1x:community"):
        assert f"runpod:nvidia-{name} " in terminal.shown
    table = terminal.shown.partition("Prices of")[0]
    assert max(map(len, table.splitlines())) <= 80


def test_a_failing_provider_is_reported_as_such(site: RunPodSite, home: Path) -> None:
    site.fail("offers", Fault(how="garbage"), times=100)

    async def by_tool() -> str:
        async with connected({"TRAINMASTER_HOME": str(home)}) as client:
            return await error_of(client, "list_offers", provider="runpod")

    assert anyio.run(by_tool).startswith("INVALID_RESPONSE: ")
