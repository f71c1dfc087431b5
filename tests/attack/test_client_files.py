"""`install` in projects and files that somebody else has made."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import tomllib
from support.attack.cases import attack_count, attack_random

from trainer_runtime.core.files.private import make_private
from trainmaster.cli import run

pytestmark = pytest.mark.attack

Printed = pytest.CaptureFixture[str]
JSON_FILES = {
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "gemini": ".gemini/settings.json",
    "claude-code": ".mcp.json",
}


@pytest.fixture(autouse=True)
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def install(printed: Printed, *words: str) -> dict[str, Any]:
    run(["install", *words, "--json"])
    answer: dict[str, Any] = json.loads(printed.readouterr().out.splitlines()[-1])
    return answer


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Links.

LINKS = [
    ("cursor", ".cursor"),
    ("cursor", ".cursor/mcp.json"),
    ("codex", ".codex"),
    ("claude-code", ".mcp.json"),
    ("claude-code", ".claude"),
    ("claude-code", ".claude/skills"),
    ("claude-code", ".claude/skills/training-runner"),
    ("claude-code", ".claude/skills/training-runner/SKILL.md"),
]


@pytest.mark.parametrize(("client", "link"), LINKS)
@pytest.mark.parametrize("inside", [False, True])
def test_nothing_is_written_through_a_link_of_a_project(
    client: str, link: str, inside: bool, project: Path, tmp_path: Path, capsys: Printed
) -> None:
    target = (project if inside else tmp_path) / "elsewhere"
    target.mkdir()
    (target / "kept").write_text("mine")
    (project / link).parent.mkdir(parents=True, exist_ok=True)
    (project / link).symlink_to(target / "kept" if "." in Path(link).name[1:] else target)
    before = [snapshot(project), snapshot(target)]
    error = install(capsys, client, "--project", str(project))["error"]
    assert error["code"] == "BAD_ARGUMENT"
    assert str(project / link) in error["message"]
    assert [snapshot(project), snapshot(target)] == before


def test_a_loop_of_links_and_a_file_for_a_folder_are_refused_with_their_path(
    project: Path, user_home: Path, capsys: Printed
) -> None:
    (project / ".cursor").symlink_to(".cursor")
    (project / ".vscode").write_text("no folder")
    (user_home / ".gemini").symlink_to(".gemini")
    for words in (
        ("cursor", "--project", str(project)),
        ("vscode", "--project", str(project)),
        ("gemini",),
    ):
        error = install(capsys, *words)["error"]
        assert error["code"] in ("BAD_ARGUMENT", "AGENT_CONFIG_UNREADABLE")
        assert f".{words[0]}" in error["message"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_neither_read_nor_replaced(
    make: Any, project: Path, capsys: Printed
) -> None:
    (project / ".cursor").mkdir()
    make(project / ".cursor/mcp.json")
    error = install(capsys, "cursor", "--project", str(project))["error"]
    assert error["code"] == "AGENT_CONFIG_UNREADABLE"


# Permissions.


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o600, 0o664, 0o400])
@pytest.mark.parametrize("client", ["cursor", "codex"])
def test_permissions_and_owner_stay(
    client: str, mode: int, user_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("TRAINMASTER_UMASK", "0022")
    config = user_home / {"cursor": ".cursor/mcp.json", "codex": ".codex/config.toml"}[client]
    config.parent.mkdir()
    config.write_text("")
    config.chmod(mode)
    if os.getuid() == 0:
        os.chown(config, 12, 34)
    before = config.stat()
    given = os.umask(0o022)
    try:
        make_private()  # as the command does
        assert install(capsys, client)["written"]
    finally:
        os.umask(given)
    after = config.stat()
    assert stat.S_IMODE(after.st_mode) == mode
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)


def test_new_skills_have_the_users_umask_and_a_new_configuration_is_private(
    user_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("TRAINMASTER_UMASK", "0022")
    given = os.umask(0o077)
    try:
        install(capsys, "claude-code")
    finally:
        os.umask(given)
    skill = user_home / ".claude/skills/training-runner/SKILL.md"
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (skill, skill.parent)]
    assert modes == [0o644, 0o755]
    assert stat.S_IMODE((user_home / ".claude.json").stat().st_mode) == 0o600


# Bytes of others.

KEPT = [
    '{"big": 1e400, "fine": 0.10000000000000000001, "zero": -0.0, "n": %s}' % ("9" * 5000),
    '{"a": 1, "a": 2, "mcpServers": {"x": {"y": 1, "y": 2}}, "servers": {"x": {}}}',
    '\ufeff{\r\n\t"ü": "\\ud800\\u00e9 é",\r\n\t"mcpServers": {},\r\n\t"servers": {}\r\n}',
    '{"mcpServers":{"a":{"command":"b"}},"servers":{"a":{"command":"b"}}}',
    "{}",
    '  {\n   "z": [1,\n 2],   "y":{ }}  \n\n\n',
    '{"NaN": NaN, "inf": [Infinity, -Infinity]}',
]


@pytest.mark.parametrize("text", KEPT)
@pytest.mark.parametrize("client", JSON_FILES)
def test_every_byte_of_a_json_file_stays(
    client: str, text: str, project: Path, capsys: Printed
) -> None:
    config = project / JSON_FILES[client]
    config.parent.mkdir(exist_ok=True)
    config.write_bytes(text.encode())
    assert install(capsys, client, "--project", str(project))["written"]
    first = config.read_bytes().decode()
    assert is_inserted(text, first)
    parsed = json.loads(first.removeprefix("\ufeff"), parse_int=str)
    holder = parsed["servers" if client == "vscode" else "mcpServers"]
    assert os.path.isabs(holder["trainmaster"]["command"])
    assert not install(capsys, client, "--project", str(project))["changed"]
    install(capsys, client, "--project", str(project), "--read-only")
    changed = config.read_bytes().decode()
    assert is_inserted(text, changed)
    assert "--read-only" in changed


def is_inserted(before: str, after: str) -> bool:
    """Whether `after` is `before` with one piece put into it."""
    pairs = zip(before, after, strict=False)
    same = next((at for at, (one, other) in enumerate(pairs) if one != other), len(before))
    return after.endswith(before[same:])


REFUSED = [
    '{"mcpServers": {}, "mcpServers": {}}',
    '{"mcpServers": {"trainmaster": {}, "trainmaster": {}}}',
    '{"mcpServers": {} /* mine */}',
    '{"mcpServers": {},}',
    '{"mcpServers": []}',
    '{"a": 1} {"b": 2}',
    "[" * 100_000,
    '{"a": ' * 100_000,
    '{"mcpServers": {"a": \x00}}',
    "null",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_can_not_be_kept_is_refused_with_the_entry(
    text: str, project: Path, capsys: Printed
) -> None:
    config = project / ".cursor/mcp.json"
    config.parent.mkdir()
    config.write_text(text)
    error = install(capsys, "cursor", "--project", str(project))["error"]
    assert error["code"] == "AGENT_CONFIG_UNREADABLE"
    assert '"command"' in error["fix"]
    assert config.read_text() == text


def test_generated_json_files_keep_their_bytes(project: Path, capsys: Printed) -> None:
    numbers, config = attack_random("client files"), project / ".cursor/mcp.json"
    config.parent.mkdir()
    for _ in range(attack_count(60)):
        members = {
            "".join(numbers.choices('aé\U0001f600"\\/ ', k=4)): numbers.choice(
                [1, -0.5, None, True, "\ud83d", "text", [], [[1, {}]], {"a": {}}]
            )
            for _ in range(numbers.randrange(5))
        }
        if numbers.random() < 0.6:
            members["mcpServers"] = {f"s{n}": {} for n in range(numbers.randrange(3))}
        indent = numbers.choice([None, 1, 4, "\t"])
        text = json.dumps(members, indent=indent, ensure_ascii=True)
        text = text.replace("\n", numbers.choice(["\n", "\r\n"])) + numbers.choice(["", "\n"])
        config.write_bytes(text.encode())
        assert install(capsys, "cursor", "--project", str(project))["written"]
        written = config.read_bytes().decode()
        assert is_inserted(text, written)
        after = json.loads(written)
        assert "trainmaster" in after["mcpServers"]
        del after["mcpServers"]["trainmaster"]
        assert after == {**members, "mcpServers": members.get("mcpServers", {})}


TOML = [
    '# mine\r\nmodel = "x"\r\n\r\n\r\n[mcp_servers.other]\r\ncommand = "y"  # z\r\n',
    "big = 1e400\nn = nan\ni = inf\ndate = 1979-05-27T07:32:00Z",
    'text = """\nnot a table\n"""\n\n\n',
    "\n\n# only a comment",
]


@pytest.mark.parametrize("text", TOML)
def test_every_byte_of_a_toml_file_stays(text: str, user_home: Path, capsys: Printed) -> None:
    config = user_home / ".codex/config.toml"
    config.parent.mkdir()
    config.write_bytes(text.encode())
    assert install(capsys, "codex")["written"]
    once = config.read_bytes().decode()
    assert once.startswith(text)
    assert not install(capsys, "codex")["changed"]
    install(capsys, "codex", "--read-only")
    install(capsys, "codex")
    assert config.read_bytes().decode() == once
    assert "trainmaster" in tomllib.loads(once)["mcp_servers"]


def test_comments_below_our_table_stay(user_home: Path, capsys: Printed) -> None:
    config = user_home / ".codex/config.toml"
    config.parent.mkdir()
    config.write_text('[mcp_servers.trainmaster]\n# ours\ncommand = "old"\n\n# of the next\n[p]\n')
    install(capsys, "codex")
    assert "# of the next\n[p]\n" in config.read_text()
    assert "old" not in config.read_text()


def test_a_text_that_resembles_our_table_is_refused(user_home: Path, capsys: Printed) -> None:
    config = user_home / ".codex/config.toml"
    config.parent.mkdir()
    text = 'text = """\n[mcp_servers.trainmaster]\nkept\n"""\n'
    config.write_text(text)
    assert install(capsys, "codex")["error"]["code"] == "AGENT_CONFIG_UNREADABLE"
    assert config.read_text() == text
