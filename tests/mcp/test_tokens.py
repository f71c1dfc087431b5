"""What tools cost a model: the list of them, and their answers, in tokens of a real vocabulary."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest
from support.mcp.answer_sizes import LARGEST, largest, measured, typical
from support.mcp.mcp_client import connected
from support.mcp.token_page import FIGURES, page
from support.mcp.tokens import tokens_of

from trainmaster.mcp.toolsets import PERSONAS
from trainmaster.sync.workspace import open_workspace

_MOST_OF_THE_LIST = 4_000
# Of clients that show output schemas, too.
_MOST_WITH_OUTPUT = 7_000
_PAGE = Path(__file__).resolve().parents[2] / "docs" / "tokens.md"


async def costs_of_the_list(environment: dict[str, str]) -> dict[str, tuple[int, int]]:
    """By tool, the tokens of what all clients show their model, and of its output schema."""
    async with connected(environment) as client:
        return {
            tool.name: (
                tokens_of(
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "input_schema": tool.input_schema,
                    }
                ),
                tokens_of(tool.output_schema),
            )
            for tool in (await client.list_tools()).tools
        }


def test_the_list_and_the_answers_keep_their_limits_and_the_page_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {"TRAINMASTER_HOME": str(tmp_path / "home")}
    listed = anyio.run(costs_of_the_list, environment)
    assert sum(shown for shown, _ in listed.values()) <= _MOST_OF_THE_LIST, listed
    assert sum(map(sum, listed.values())) <= _MOST_WITH_OUTPUT
    with open_workspace(environment) as workspace:
        cases = typical(workspace, tmp_path)
    answers = anyio.run(measured, environment, cases, tmp_path)
    beyond = {case.key: answers[case.key] for case in cases if answers[case.key] > case.limit}
    assert not beyond
    most = dict(largest())
    assert {name: size for name, size in most.items() if size > LARGEST} == {}
    assert set(most) == set(listed) == {case.tool for case in cases}
    figures = {
        "list": {name: list(pair) for name, pair in listed.items()},
        "answers": {case.key: [answers[case.key], case.limit] for case in cases},
        "largest": most,
    }
    if os.environ.get("UPDATE_GOLDEN") == "1":
        FIGURES.write_text(f"{json.dumps(figures, indent=1)}\n")
        _PAGE.write_text(page())
    recorded = json.loads(FIGURES.read_text())
    assert _differing(recorded, figures) == []
    assert _PAGE.read_text() == page()


def test_each_persona_has_a_row_on_the_page() -> None:
    text = page()
    assert [name for name in PERSONAS if f"| `{name}` |" not in text] == []


def _differing(recorded: object, found: object, place: str = "") -> list[str]:
    """Where the figures of the page are not those of today: ids and times take some tokens more or
    less."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        names = sorted({*recorded, *found})
        return [
            one
            for name in names
            for one in _differing(recorded.get(name), found.get(name), f"{place}/{name}")
        ]
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        return [
            one
            for before, now in zip(recorded, found, strict=True)
            for one in _differing(before, now, place)
        ]
    if isinstance(recorded, int) and isinstance(found, int):
        near = abs(recorded - found) <= max(8, 0.1 * recorded)
        return [] if near else [f"{place}: {found}, on the page {recorded}"]
    return [place]
