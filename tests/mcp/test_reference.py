from __future__ import annotations

import os
from pathlib import Path

import anyio

from scripts.pages.tools import reference
from trainmaster.mcp import build_server

_DOCS = Path(__file__).resolve().parents[2] / "docs" / "mcp.md"


def test_the_reference_is_up_to_date_and_mentions_every_tool_and_parameter(tmp_path: Path) -> None:
    if os.environ.get("UPDATE_GOLDEN") == "1":
        _DOCS.write_text(reference())
    page = _DOCS.read_text()
    assert page == reference()
    server = build_server({"TRAINMASTER_HOME": str(tmp_path / "home")})
    tools = anyio.run(server.list_tools)
    assert tools
    for tool in tools:
        words = [tool.name, *tool.input_schema["properties"]]
        assert [word for word in words if f"`{word}`" not in page] == []
