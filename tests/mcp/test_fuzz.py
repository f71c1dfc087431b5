"""Random calls of every tool: each gets an answer by the contract, and nothing outside changes.

`TRAINMASTER_FUZZ_CALLS` says how many, `TRAINMASTER_FUZZ_SEED` repeats one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.core.journal_records import (
    attempt_ended,
    attempt_starting,
    kept,
    lines,
    metric,
    started,
    state,
)
from support.errors.hostile_answers import HOSTILE, unshowable
from support.mcp.everything_due import HOST, RecordedWorkspace
from support.mcp.fuzzed_calls import SPEC, FuzzedCalls
from support.mcp.mcp_client import connected, error_of
from support.mcp.recording_ports import refusing_processes
from support.mcp.watched_network import watched_network
from support.runs.running_run import small_spec
from support.sync.followed_run import FakeRun

from trainmaster.answers.fitting import size_of
from trainmaster.errors.error_codes import CODES
from trainmaster.home.paths import Home
from trainmaster.runs.launch.launch import launch

pytestmark = [pytest.mark.slow, pytest.mark.attack]

_CALLS = int(os.environ.get("TRAINMASTER_FUZZ_CALLS", "300"))
_SEED = int(os.environ.get("TRAINMASTER_FUZZ_SEED", str(time.time_ns() % 100_000)))
_LONGEST_CALL_S = 60.0
_LARGEST_ERROR = 10_000
_LARGEST = {"overview": 1100, "get_run": 8192, "diagnose": 8192, "wait_for_event": 4096}
_ERROR = re.compile(r"([A-Z_]+): .+ Fix: .+ retryable=(yes|no)", re.DOTALL)
_ENDS = {"completed": "completed", "failed": "crashed"}
_CONFIGURED = "hub.example"
_SETTINGS = f"agent: {{endpoints: ['http://{_CONFIGURED}']}}\n"
_ELSEWHERE = ("https://attacker.example", "http://169.254.169.254", "http://127.0.0.1:9")
_RUN_BY_PLANS = {"environment": "{python: ./bin/python}"}
_RUN_BY_LAUNCHES = {
    "environment": "{setup: bin/python, requirements: bin/python}",
    "env": "{PYTHONSTARTUP: bin/python, BROWSER: bin/python}",
}


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A person's folders: their own home and the one that they work in."""
    folder = tmp_path / "person"
    for name in ("work/corpus/a.txt", ".ssh/config", ".ssh/id_ed25519", ".aws/credentials"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    (folder / "work" / "plain.log").write_text("step 1: loss 2.5\nstep 2: loss 2.4\n")
    (folder / "work" / "hostile.log").write_bytes(
        HOSTILE.encode(errors="replace") * 50 + b"\nCUDA out of memory\n" + bytes(range(256)) * 20
    )
    (folder / "work" / "long.log").write_bytes(b"loss 1 " * 300_000)
    program = folder / "work" / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {program.parent}/ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))  # its cache of fonts
    monkeypatch.chdir(folder / "work")
    yield folder


@pytest.fixture
def workspace(home: Path, tmp_path: Path, person: Path) -> Iterator[RecordedWorkspace]:
    home.mkdir()
    Home(home).settings.write_text(_SETTINGS)
    workspace = RecordedWorkspace(Home(home), tmp_path / HOST)
    try:
        for name, reason in _ENDS.items():
            spec = small_spec(tmp_path, host=HOST, name=name, environment="existing")
            run_id = asyncio.run(launch(workspace, spec)).run_id
            _end(tmp_path / HOST / "runs" / run_id, name, reason)
        yield workspace
    finally:
        workspace.close()


@pytest.fixture
def reading(home: Path, tmp_path: Path, person: Path) -> Iterator[RecordedWorkspace]:
    """The same with runs that were never launched, which is enough to read about them."""
    home.mkdir()
    Home(home).settings.write_text(_SETTINGS)
    workspace = RecordedWorkspace(Home(home), tmp_path / HOST)
    try:
        for name, reason in _ENDS.items():
            run = FakeRun(workspace, tmp_path / HOST / "runs" / f"{name}-aaaaaa", HOST)
            _end(run.folder, name, reason)
        yield workspace
    finally:
        workspace.close()


def _end(folder: Path, name: str, reason: str) -> None:
    """Write what the run's host would have written by its end."""
    journal = [attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running")]
    journal += [("finding", {"attempt": 1, "finding": _finding(n)}) for n in range(40)]
    journal += [attempt_ended(1, reason, last_words=HOSTILE), state(name), ("closed", {})]
    points = [metric(step, 2.5) for step in range(1, 50)]
    (folder / "attempts" / "1").mkdir(parents=True, exist_ok=True)
    now = time.time() - 60.0
    (folder / "supervisor.jsonl").write_bytes(b"".join(lines(journal, first_t=now)))
    events = [started(), *points, *kept(20, 2.0)]
    (folder / "attempts/1/events.jsonl").write_bytes(b"".join(lines(events, first_t=now)))
    (folder / "attempts/1/train.log").write_bytes(HOSTILE.encode(errors="replace") * 100)


def _finding(number: int) -> dict[str, Any]:
    patch = {"id": "halve_micro_batch", "from": "latest", "keeps_batch": True, "why": HOSTILE}
    patch |= {"set": {"batch.micro_batch": 1}, "expected": {"batch.micro_batch": 2}}
    text = {"evidence": [HOSTILE] * 6, "explanation": HOSTILE, "advice": [HOSTILE] * 12}
    place = {"id": f"{number:08x}", "code": "cuda_oom", "step": number, "led_to": ["nan_loss"]}
    return {**place, **text, "severity": "critical", "confidence": 1.0, "patches": [patch]}


@pytest.mark.long
def test_random_calls_are_all_answered_by_the_contract_and_change_nothing_outside(
    workspace: RecordedWorkspace, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [SPEC, SPEC, *_specs_of_hubs(HOST), *_specs_of_hubs("local")]
    specs += _specs_with_code("local", _RUN_BY_LAUNCHES)
    with _watched(person, monkeypatch):
        codes = anyio.run(partial(_fuzz, workspace, specs, _CALLS))
    assert codes["ok"] > _CALLS // 20


def test_a_read_only_server_starts_nothing_that_random_specs_name(
    reading: RecordedWorkspace, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = max(60, _CALLS // 4)
    specs = [*_specs_of_hubs(HOST), *_specs_with_code(HOST, _RUN_BY_PLANS)]
    specs += _specs_with_code("local", {**_RUN_BY_PLANS, **_RUN_BY_LAUNCHES})
    anyio.run(partial(_fuzz, reading, [SPEC], 1, read_only=True))  # what imports start
    reading.written.clear()
    with _watched(person, monkeypatch), refusing_processes(reading.written):
        codes = anyio.run(partial(_fuzz, reading, specs, calls, read_only=True, often="plan_run"))
    assert reading.written == []
    assert codes["ok"] > calls // 20


def test_a_configured_hub_is_asked_and_the_watch_sees_it(
    reading: RecordedWorkspace, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plan_each() -> None:
        environment = {"TRAINMASTER_HOME": str(reading.home.root)}
        async with connected(environment, opened=lambda _: nullcontext(reading)) as client:
            for spec in _specs_of_hubs("local")[1:]:
                await error_of(client, "plan_run", spec=spec)

    with watched_network(monkeypatch) as asked:
        anyio.run(plan_each)
    assert [one.server for one in asked] == [f"{_CONFIGURED}:80"]
    assert "MainThread" in asked[0].by


@contextmanager
def _watched(person: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, none of the person's files may change, and no server be asked that is not
    configured, a host on record, or public and asked by default."""
    print(f"TRAINMASTER_FUZZ_SEED={_SEED}")
    before = dict(_contents(person))
    with watched_network(patch) as asked:
        yield
    assert dict(_contents(person)) == before
    expected = {f"{_CONFIGURED}:80", "huggingface.co:443", "127.0.0.1:1"}
    assert [one for one in asked if one.server not in expected] == []


def _specs_of_hubs(host: str) -> list[str]:
    """Specs that lead to servers: one that is configured, and others."""
    hub = SPEC.replace("nanogpt", "hf").replace("host: gpu1", f"host: {host}")
    hub = hub.replace("{n_layer: 1, n_head: 2, d_model: 32}", "{hub: owner/model}")
    variables = [f"HF_ENDPOINT: '{url}'" for url in (f"http://{_CONFIGURED}", *_ELSEWHERE)]
    variables += [f"WANDB_BASE_URL: '{_ELSEWHERE[0]}'", "HTTPS_PROXY: 'attacker.example:3128'"]
    return [hub, *(hub.replace("steps:", f"env: {{{one}}}\nsteps:") for one in variables)]


def _specs_with_code(host: str, fields: Mapping[str, str]) -> list[str]:
    """Specs that name programs; each would leave a mark beside itself."""
    spec = SPEC.replace("host: gpu1", f"host: {host}")
    lines = [f"{field}: {value}" for field, value in fields.items()]
    return [spec.replace("steps:", f"{line}\nsteps:") for line in lines]


async def _fuzz(
    workspace: RecordedWorkspace,
    specs: Sequence[str],
    count: int,
    *,
    read_only: bool = False,
    often: str | None = None,
) -> Counter[str]:
    """Random calls, each of which is answered by the contract; how often with which code."""
    environment = {**os.environ, "TRAINMASTER_HOME": str(workspace.home.root)}
    codes: Counter[str] = Counter()
    defects: list[tuple[object, ...]] = []
    options = {"opened": lambda _: nullcontext(workspace), "read_only": read_only}
    async with connected(environment, **options) as client:
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        calls = FuzzedCalls(_SEED, schemas, {**_known(workspace), "spec": specs}, often)
        for number in range(count):
            name, arguments = calls.next()
            with anyio.fail_after(_LONGEST_CALL_S):
                code, content = await _answer(client, name, arguments)
            codes[code] += 1
            if code == "INTERNAL":
                defects.append((number, name, str(arguments)[:2000]))
            calls.see(content)
    print(codes.most_common())
    assert not defects, defects
    return codes


async def _answer(client: Client, name: str, arguments: dict[str, Any]) -> tuple[str, Any]:
    """The code of an answer, `ok` for a success, and its content, checked against the contract."""
    result = await client.call_tool(name, arguments)
    content = result.structured_content or {}
    if not result.is_error:
        assert not list(unshowable(content)), (name, arguments)
        assert size_of(content) <= _LARGEST.get(name, 128_000), (name, arguments)
        return "ok", content
    text = str(result.content[0].text)  # type: ignore[union-attr]
    error = _ERROR.fullmatch(text)
    assert error is not None, (name, arguments, text)
    assert error.group(1) in CODES
    assert not list(unshowable(text))
    assert len(text) < _LARGEST_ERROR
    return error.group(1), {}


def _known(workspace: RecordedWorkspace) -> dict[str, list[Any]]:
    runs = [run.run_id for run in workspace.control.runs()]
    files = ["plain.log", "hostile.log", "long.log", str(Path.cwd() / "plain.log"), "corpus"]
    return {
        "run_id": [*runs, *runs, "completed", *files],
        "host": [HOST, "nowhere", HOSTILE, "a" * 300],
        "check": [HOST, "nowhere"],
        "address": [
            "127.0.0.1:2",
            "a\0b",
            HOSTILE,
            "x" * 300 + ":22",
            "u@:99999",
            "-oProxyCommand=x",
        ],
        "key": ["loss", "val_loss", "lr", "nope"],
        "log": ["plain.log", "/nope"],
        "until": ["end", "checkpoint", "step:5", "step:-1"],
        "grep": ["loss", "(", "(a+)+$", "."],
        "pattern": ["*.log", "final", "../../*", "**/*"],
        "when": ["loss > 3", "state failed", "silence 1s", "loss > NaN"],
        "offer": ["runpod:x", "none"],
        "apply": ["cuda_oom", "00000001", "00000001:halve_micro_batch"],
        "name": ["one", "two-2"],
    }


def _contents(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else b"folder"
        yield str(path), hashlib.sha256(data).hexdigest()
