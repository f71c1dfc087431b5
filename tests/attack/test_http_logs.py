"""What a server over HTTP logs and whom it answers: no ids, no tokens, no other names."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import anyio
import httpx
import pytest
from support.attack.served import served_process, until
from support.mcp.http_server import answered, serving, settings, token_for

from trainmaster.serving.log import ServerLog

pytestmark = pytest.mark.attack


def test_a_refused_log_line_ends_nothing_and_lines_are_bounded(tmp_path: Path) -> None:
    """The handler neither raises nor opens a file, whatever is logged and wherever to."""
    path = tmp_path / "log"
    session, token = "0123456789abcdef" * 2, "tmk_" + "a" * 43
    opened: list[str] = []
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
    with path.open("wb") as file:
        log = ServerLog(file.fileno())
        opened.clear()
        for number in range(500):
            try:
                raise OSError(24, f"session {session} of {token}\x1b[31m\nforged")
            except OSError:
                record = logging.LogRecord(
                    "mcp", logging.ERROR, __file__, 1, "%s", (number,), sys.exc_info()
                )
            log.emit(record)
        assert [one for one in opened if "test_http_logs" in one] == []
        log.emit(logging.LogRecord("mcp", logging.ERROR, __file__, 1, "%d", ("no number",), None))
    lines = path.read_text().splitlines()
    assert 0 < len(lines) <= 121
    assert "OSError" in lines[0] and "test_http_logs.py" in lines[0]
    assert session not in path.read_text() and "aaaa" not in path.read_text()
    assert "\x1b" not in path.read_text()
    ServerLog(-1).emit(record)


def test_names_are_checked_before_anything_is_answered(home: Path) -> None:
    """Also where nothing is, and where a slash could lead elsewhere."""
    environment = {"TRAINMASTER_HOME": str(home)}
    url_of_issuer = "https://id.example.org"
    settings(home, f"server: {{oauth: {{issuer: '{url_of_issuer}'}}}}\n")

    async def scenario() -> None:
        async with serving(environment) as url:
            own = url.removesuffix("/mcp")
            paths = ("/mcp", "/mcp/", "/none", "/.well-known/oauth-protected-resource/mcp")
            async with httpx.AsyncClient() as http:
                for path in (*paths, *(f"{one}/" for one in paths)):
                    for method in ("GET", "POST", "OPTIONS", "HEAD"):
                        named = await http.request(
                            method, own + path, headers={"host": "evil.example"}
                        )
                        assert named.status_code == 421, (method, path)
                        paged = await http.request(
                            method, own + path, headers={"origin": "http://evil.example"}
                        )
                        assert paged.status_code == 403, (method, path)
                        assert "access-control-allow-origin" not in paged.headers
                assert (await http.get(f"{own}/mcp/")).status_code == 404

    anyio.run(scenario)


def test_no_session_id_is_logged(home: Path, tmp_path: Path) -> None:
    environment = {"TRAINMASTER_HOME": str(home)}
    ann, ben = (token_for(environment, name, "read") for name in ("ann", "ben"))
    with served_process(["mcp", "--http", "--port", "0"], environment, tmp_path) as one:

        async def scenario() -> str:
            opened = await answered(one.url, ann)
            session_id = opened.headers["mcp-session-id"]
            stolen = await answered(
                one.url,
                ben,
                {"mcp-session-id": session_id},
                {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
            )
            assert stolen.status_code == 404
            return session_id

        session_id = anyio.run(scenario)
        until(lambda: "Rejecting request for session" in one.log.read_text())
        assert session_id not in one.log.read_text()
        assert not re.search(r"[0-9a-f]{32}", one.log.read_text())
