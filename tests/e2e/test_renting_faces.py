"""Rent and release through commands and tools, with approval in between."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.host.pty import Terminal
from support.mcp.mcp_client import answer_of, connected, error_of
from support.providers.runpod_site import RunPodSite
from support.runs.running_run import CommandLine, wait_until

from trainmaster.cli import run
from trainmaster.home.paths import Home
from trainmaster.machines.clouds import InstanceRequest, open_cloud
from trainmaster.settings.settings import read_settings

Command = Callable[..., dict[str, Any]]
_OFFER = "runpod:nvidia-geforce-rtx-4090:1x:community"


@pytest.fixture
def site(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPodSite]:
    """A RunPod stand-in, with its key in this process's environment."""
    with RunPodSite() as site:
        home.mkdir()
        (home / "settings.yaml").write_text(f"cloud_urls: {{runpod: {site.url}}}\n")
        monkeypatch.setenv("RUNPOD_API_KEY", site.account_key)
        yield site


@pytest.fixture
def at(home: Path) -> Callable[..., Terminal]:
    """A command of that home at a terminal."""
    return lambda *arguments: Terminal(CommandLine(home), *arguments)


@pytest.fixture
def run_json(site: RunPodSite, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command with --json; returns its answer, or its error."""

    def call(*arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        code = run([*arguments, "--json"])
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert (code == 0) is ("error" not in answer)
        return answer.get("error", answer)

    return call


def test_an_agent_rents_once_its_user_approves_and_the_user_releases(
    run_json: Command, at: Callable[..., Terminal], site: RunPodSite, home: Path
) -> None:
    """An agent whose client can't ask requests an instance; its user approves, waits for it with
    the same key, and releases it."""
    wanted = {"offer": _OFFER, "hours": 2.0, "name": "gpu1", "idempotency_key": "k"}
    typed = ("provision", _OFFER, "--hours", "2", "--name", "gpu1", "--idempotency-key", "k")

    async def call(answer: Callable[..., Awaitable[Any]]) -> Any:
        async with connected({"TRAINMASTER_HOME": str(home)}) as client:
            return await answer(client, "provision", **wanted)

    assert _OFFER in run_json("offers", "--gpu", "4090", "--provider", "runpod")["offers"]["offer"]
    unasked = run_json(*typed)
    assert unasked["code"] == "CONFIRMATION_REQUIRED" and "$0.69 in total" in unasked["message"]
    refused = anyio.run(call, error_of)
    assert refused.startswith("CONFIRMATION_REQUIRED: Rent gpu1: 1 x ")
    approval = refused.partition(" approve ")[2].partition("`")[0]
    with at("approve", approval) as terminal:
        terminal.wait_for("Approve?")
        assert site.count("create") == 0
        terminal.type("y\n")
        assert terminal.end() == 0, terminal.shown
    begun = anyio.run(call, answer_of)
    assert begun["host"] == "gpu1" and begun["state"] in ("intended", "created", "ready")
    # The same key needs no second approval.
    ready = wait_until(
        lambda: (instance := run_json(*typed))["state"] == "ready" and instance, "the instance"
    )
    assert (ready["state"], ready["instance"], ready["provider"]) == (
        "ready",
        begun["instance"],
        "runpod",
    )
    assert hosts(run_json) == ["local", "gpu1"]
    assert [row["state"] for row in run_json("costs")["instances"]] == ["ready"]
    for answer, code, left in (("\n", 1, 1), ("y\n", 0, 0)):
        with at("release", "gpu1") as terminal:
            terminal.wait_for("Go ahead? [y/N]:")
            assert "Release gpu1" in terminal.shown
            terminal.type(answer)
            assert terminal.end() == code, terminal.shown
        assert (len(site.alive), site.count("create")) == (left, 1)
    assert hosts(run_json) == ["local"]
    assert run_json("release", "gpu1")["state"] == "ended"


def test_an_orphan_is_listed_and_released_by_its_tag(
    run_json: Command, site: RunPodSite, home: Path
) -> None:
    tag = "tm-abcdef-orphan"

    async def rent() -> None:
        cloud = open_cloud("runpod", Home(home), read_settings(Home(home)), os.environ)
        offer = await cloud.offer(_OFFER.partition(":")[2], 50)
        assert offer is not None
        await cloud.create(offer, InstanceRequest(tag, "ssh-ed25519 AAAA", 50, offer.usd_per_h))
        await cloud.disconnect()

    anyio.run(rent)
    assert run_json("costs").get("orphans") is None
    [orphan] = run_json("costs", "--refresh")["orphans"]
    assert (orphan["instance"], orphan["of_this_home"]) == (tag, False)
    assert run_json("release", tag)["code"] == "CONFIRMATION_REQUIRED"
    assert run_json("release", tag, "--yes")["state"] == "ended"
    assert site.alive == []


def hosts(run_json: Command) -> list[str]:
    return [row["name"] for row in run_json("hosts")["hosts"]]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("provision", "runpod:nothing", "--hours", "1"), "OFFER_UNKNOWN"),
        (("provision", "unknown:a", "--hours", "1"), "CLOUD_UNKNOWN"),
        (("provision", "OFFER", "--hours", "99"), "SPEND_CAP"),
        (("provision", "OFFER", "--hours", "nan"), "BAD_ARGUMENT"),
        (("provision", "OFFER", "--hours", "1", "--disk-gib", "-5"), "BAD_ARGUMENT"),
        (("provision", "OFFER", "--hours", "1", "--name", "a b"), "UNSAFE_NAME"),
        (("release", "unknown"), "INSTANCE_UNKNOWN"),
    ],
)
def test_invalid_input_is_refused_before_anything_is_spent(
    site: RunPodSite, run_json: Command, arguments: tuple[str, ...], code: str
) -> None:
    filled = [_OFFER if word == "OFFER" else word for word in arguments]
    assert run_json(*filled, "--yes")["code"] == code
    assert site.count("create") == 0


def test_a_key_that_is_missing_or_wrong_is_named_by_its_variable(
    run_json: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("provision", _OFFER, "--hours", "1", "--yes")
    monkeypatch.setenv("RUNPOD_API_KEY", "wrong")
    wrong = run_json(*asked)
    assert wrong["code"] == "CLOUD_KEY_REFUSED" and "RUNPOD_API_KEY" in str(wrong)
    monkeypatch.delenv("RUNPOD_API_KEY")
    missing = run_json(*asked)
    assert missing["code"] == "CLOUD_KEY_MISSING" and "RUNPOD_API_KEY" in str(missing)


def test_a_price_that_rose_after_the_quote_is_refused(site: RunPodSite, run_json: Command) -> None:
    site.modes.cost_factor = 2.0
    asked = ("provision", _OFFER, "--hours", "1", "--yes")
    assert run_json(*asked)["code"] == "PRICE_ABOVE_QUOTE"
    wait_until(lambda: site.alive == [], "the end of the instance")
