"""Odd numbers, texts and nestings in every field and argument: no answer is a defect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.attack.cases import attack_count, attack_random
from support.attack.planted_home import SPECS, plant_home, plant_specs
from support.mcp.mcp_client import connected

from trainmaster.cli import run
from trainmaster.home.paths import Home
from trainmaster.plan.fields.field_tree import all_fields

pytestmark = [pytest.mark.attack, pytest.mark.slow]

Printed = pytest.CaptureFixture[str]
# As YAML, which is what `--set` and a spec take.
VALUES = {
    "beyond a float": "1e400",
    "below a float": "-1e400",
    "a tiny number": "1e-400",
    "minus zero": "-0.0",
    "5,000 digits": "9" * 5000,
    "5,000 digits behind a point": f"0.{'1' * 5000}",
    "64 bits and one": str(2**64),
    "NaN": ".nan",
    "infinity": "-.inf",
    "hexadecimal": f"0x{'f' * 400}",
    "deep lists": "[" * 2000 + "]" * 2000,
    "deep mappings": "{a: " * 500 + "1" + "}" * 500,
    "open lists": "[" * 100_000,
    "half a surrogate pair": '"\\ud800"',
    "a zero byte": '"a\\0b"',
    "a key that stands twice": "{a: 1, a: 2}",
    "an anchor": "&a [*a]",
    "a tag": "!!python/object:os.system x",
    "many items": json.dumps([1] * 5000),
    "a long text": "x" * 300_000,
    "a date": "2026-13-45",
    "null": "null",
    "an empty list": "[]",
    "an empty mapping": "{}",
    "true": "true",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    plant_specs(tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    return plant_home(tmp_path / "home", tmp_path / "box")


def fields() -> list[str]:
    return [one.path.replace("[]", "[0]") for one in all_fields()]


def test_every_field_answers_for_every_odd_value(home: Home, capsys: Printed) -> None:
    numbers = attack_random("odd values")
    cases = [(spec, field, kind) for spec in SPECS for field in fields() for kind in VALUES]
    defects = []
    for spec, field, kind in numbers.sample(cases, min(len(cases), attack_count(25))):
        capsys.readouterr()
        run(["plan", f"{spec}.yaml", "--set", f"{field}={VALUES[kind]}", "--json"])
        answer = json.loads(capsys.readouterr().out.splitlines()[-1])
        if answer.get("error", {}).get("code") == "INTERNAL":
            defects.append((spec, field, kind, answer))
    assert not defects, defects


def test_every_argument_of_every_tool_answers_for_every_odd_value(home: Home) -> None:
    numbers = attack_random("odd values of tools")
    values: list[Any] = [
        1e400, -1e400, 5e-324, -0.0, 10**400, 2**63, "9" * 5000, [[]], {"a": {}}, "\0", True,
        ["x"] * 3000, {"x": "y" * 100_000}, "[" * 5000, *VALUES.values(),
    ]  # fmt: skip

    async def call_each() -> list[tuple[object, ...]]:
        defects: list[tuple[object, ...]] = []
        async with connected({"TRAINMASTER_HOME": str(home.root)}) as client:
            tools = (await client.list_tools()).tools
            cases = [
                (tool.name, name) for tool in tools for name in tool.input_schema["properties"]
            ]
            for _ in range(attack_count(60)):
                (tool, name), value = numbers.choice(cases), numbers.choice(values)
                if tool in ("wait_for_event", "provision", "add_host", "launch"):
                    continue
                with anyio.fail_after(60.0):
                    result = await client.call_tool(tool, {name: value})
                text = str(result.content[0].text)  # type: ignore[union-attr]
                if result.is_error and text.startswith("INTERNAL"):
                    defects.append((tool, name, str(value)[:40], text[:200]))
        return defects

    assert anyio.run(call_each) == []
