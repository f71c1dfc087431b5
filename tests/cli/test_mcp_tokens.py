"""Access tokens of the server over HTTP, and what `mcp --http` refuses to begin with."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from trainmaster.cli import run
from trainmaster.home.paths import Home


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = 2 if arguments[0] == "usage" else 1
    error = answer(capsys, *arguments[arguments[0] == "usage" :], code=code)["error"]
    assert error["fix"]
    return str(error["code"])


def test_a_token_is_shown_once_and_kept_as_a_digest(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = answer(capsys, "mcp-tokens", "add", "ann", "--role", "operate", "--days", "30")
    assert made["token"].startswith("tmk_")
    file = Home(home).access_tokens
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert made["token"] not in file.read_text()
    rows = answer(capsys, "mcp-tokens")["tokens"]
    assert [(row["name"], row["role"]) for row in rows] == [("ann", "operate")]
    assert "expires_at" in rows[0]
    assert made["token"] not in Home(home).action_log.read_text()
    assert refused(capsys, "mcp-tokens", "add", "ann") == "TOKEN_EXISTS"
    assert refused(capsys, "mcp-tokens", "remove", "ben") == "TOKEN_UNKNOWN"
    assert refused(capsys, "usage", "mcp-tokens", "add", "a b") == "BAD_ARGUMENT"
    assert refused(capsys, "usage", "mcp-tokens", "add", "ben", "--role", "all") == "BAD_ARGUMENT"
    assert answer(capsys, "mcp-tokens", "remove", "ann") == {"name": "ann"}
    assert answer(capsys, "mcp-tokens") == {"tokens": []}


def test_people_see_who_has_a_token(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mcp-tokens", "add", "ann"]) == 0
    token, said = capsys.readouterr().out.splitlines()
    assert token.startswith("tmk_")
    assert said == "The access token of ann, role read. It is not shown again."
    assert run(["mcp-tokens"]) == 0
    shown = capsys.readouterr().out
    assert "ann" in shown
    assert "never" in shown


@pytest.mark.parametrize("text", ["{}", "[", '{"tokens": [{"name": "ann", "role": "all"}]}'])
def test_a_damaged_file_of_tokens_is_an_error(
    home: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    home.mkdir(mode=0o700)
    Home(home).access_tokens.write_text(text)
    Home(home).access_tokens.chmod(0o600)
    assert refused(capsys, "mcp-tokens") == "TOKENS_NOT_READABLE"
    assert refused(capsys, "mcp", "--http", "--port", "0") == "TOKENS_NOT_READABLE"


def test_a_server_that_others_could_use_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    http = ("mcp", "--http", "--port", "0")
    anywhere = (*http, "--address", "0.0.0.0")
    assert refused(capsys, *http) == "SERVER_NOT_PROTECTED"
    assert refused(capsys, *anywhere, "--no-auth") == "SERVER_NOT_PROTECTED"
    assert run(["mcp-tokens", "add", "ann"]) == 0
    assert refused(capsys, *anywhere) == "SERVER_NOT_PROTECTED"  # no TLS
    (home / "settings.yaml").write_text("server: {proxies: [10.0.0.1]}\n")
    assert refused(capsys, *anywhere) == "SERVER_NOT_PROTECTED"  # no name
    assert refused(capsys, "usage", "mcp", "--port", "80") == "BAD_ARGUMENT"
    assert refused(capsys, "usage", *http, "--key", str(tmp_path / "k")) == "BAD_ARGUMENT"
    pem = str(tmp_path / "none.pem")
    assert refused(capsys, "usage", *http, "--certificate", pem, "--key", pem) == "BAD_ARGUMENT"
    assert refused(capsys, "usage", *http, "--tools", "no_such") == "BAD_ARGUMENT"
    assert refused(capsys, "mcp", "--http", "--address", "no.such") == "SERVER_NOT_PROTECTED"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert refused(capsys, "mcp", "--http", "--port", port) == "ADDRESS_UNUSABLE"


@pytest.mark.parametrize(
    "server",
    [
        "{url: http://train.example.org/mcp}",
        "{url: 'https://train.example.org'}",
        "{origins: ['https://app.example.org/']}",
        "{proxies: ['*']}",
        "{requests_per_minute: 0}",
        "{oauth: {issuer: http://id.example.org}}",
        "{oauth: {issuer: https://id.example.org, introspection_url: https://id.example.org/i}}",
        "{oauth: {issuer: https://id.example.org, scopes: {train: all}}}",
        "{oauth: {issuer: https://id.example.org, scopes: {}}}",
        "{oauth: {issuer: https://id.example.org, scopes: {'a\\\"b': read}}}",
    ],
)
def test_settings_of_the_server_that_mean_nothing_are_refused(
    home: Path, capsys: pytest.CaptureFixture[str], server: str
) -> None:
    home.mkdir(mode=0o700)
    (home / "settings.yaml").write_text(f"server: {server}\n")
    error = answer(capsys, "mcp", "--http", "--port", "0", code=1)["error"]
    assert error["code"] == "SETTINGS_NOT_READABLE"
    assert error["field"].startswith("server.")
