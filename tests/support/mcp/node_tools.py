"""The protocol's own tools for trying a server, on Node.js 22: conformance suite and inspector.

`scripts/setup_node.sh` installs them; their versions are in `node/package-lock.json` beside this.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

MODULES = Path(__file__).resolve().parents[3] / ".venv" / "node" / "node_modules"
_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A tool's process that has ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the conformance suite. `id`: as the suite names it."""

    scenario: str
    id: str
    failed: bool
    why: str


async def run_tool(name: str, *arguments: str, home: Path) -> Ended:
    """Run a tool to its end; its own files go into `home`, which counts as its user's home."""
    nodes = sorted(MODULES.glob("node-linux-*/bin/node"))
    script = MODULES / ".bin" / name
    if not nodes or not script.exists():
        pytest.fail(f"{name} is not installed: run `make setup`, or scripts/setup_node.sh")
    path = f"{nodes[0].parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(home), "PATH": path, "NO_COLOR": "1"}
    with anyio.fail_after(_PATIENCE_S):
        ended = await anyio.run_process(
            [str(nodes[0]), str(script.resolve()), *arguments], env=environment, check=False
        )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


async def conformance_of(url: str, folder: Path) -> list[Check]:
    """What the conformance suite finds out about the server at `url`: all of its scenarios."""
    results = folder / "conformance"
    ended = await run_tool(
        "conformance", "server", "--url", url, "--suite", "all", "-o", str(results), home=folder
    )
    found = [
        Check(scenario_of(file), str(check["id"]), check["status"] == "FAILURE", _why(check))
        for file in sorted(results.glob("*/checks.json"))
        for check in json.loads(file.read_text())
    ]
    assert found, ended
    return found


def scenario_of(file: Path) -> str:
    """Of `server-NAME-2026-11-23T12-54-20-205Z/checks.json`; a name may hold `-20` itself."""
    return re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", file.parent.name.removeprefix("server-"))


def _why(check: Mapping[str, object]) -> str:
    return str(check.get("errorMessage") or check.get("description"))
