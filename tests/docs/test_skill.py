from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainmaster.cli.reference import every_command
from trainmaster.mcp.toolsets import TOOLSETS
from trainmaster.plan.spec import load_spec
from trainmaster.words.errors import CODES
from trainmaster.words.yaml12 import load_yaml

_SKILLS = Path(__file__).resolve().parents[2] / "skills"
_COMMANDS = every_command()
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


@pytest.fixture(params=sorted(path.name for path in _SKILLS.iterdir()))
def skill(request: pytest.FixtureRequest) -> Path:
    return _SKILLS / str(request.param) / "SKILL.md"


def parts(skill: Path) -> tuple[dict[str, str], str]:
    """The frontmatter and the body."""
    _, frontmatter, body = skill.read_text().split("---\n", 2)
    loaded = load_yaml(frontmatter)
    assert isinstance(loaded, dict)
    return loaded, body


def quoted(body: str) -> list[str]:
    """What stands between backticks within a line."""
    return re.findall(r"`([^`\n]+)`", body)


def commands(body: str) -> list[list[str]]:
    """The command lines of Trainmaster, without the first word."""
    return [text.split()[1:] for text in quoted(body) if text.startswith("trainmaster ")]


def test_the_frontmatter_says_what_and_when(skill: Path) -> None:
    frontmatter, _ = parts(skill)
    assert set(frontmatter) == {"name", "description"}
    assert frontmatter["name"] == skill.parent.name
    assert re.fullmatch(r"[a-z0-9-]{1,64}", frontmatter["name"])
    assert 0 < len(frontmatter["description"]) <= 1024
    assert "Use it " in frontmatter["description"]


def test_the_body_is_short(skill: Path) -> None:
    _, body = parts(skill)
    assert len(body.splitlines()) < 500
    assert len(body) / 3 < 5000  # a token is three characters or more


def test_every_command_and_option_named_exists(skill: Path) -> None:
    _, body = parts(skill)
    lines = commands(body)
    assert lines
    for words in lines:
        length = 2 if " ".join(words[:2]) in _COMMANDS else 1
        name, rest = " ".join(words[:length]), words[length:]
        assert name in _COMMANDS
        known = {option for item in _COMMANDS[name].params for option in item.opts}
        assert set(_OPTION.findall(" ".join(rest))) <= known, (name, rest)


def test_every_tool_and_error_code_named_exists(skill: Path) -> None:
    _, body = parts(skill)
    tools = {item.function.__name__ for toolset in TOOLSETS.values() for item in toolset}
    named = set(
        re.findall(r"\b[a-z]+_(?:run|runs|log|metrics|event|checkpoints|host|hosts)\b", body)
    )
    assert named
    assert named <= tools
    codes = {text for text in quoted(body) if re.fullmatch(r"[A-Z]+(_[A-Z]+)+|INTERNAL", text)}
    assert codes - {"TRAINMASTER_HOME"} <= set(CODES)


def test_the_example_spec_is_a_valid_one(skill: Path) -> None:
    _, body = parts(skill)
    examples = re.findall(r"```yaml\n(.*?)```", body, re.DOTALL)
    expected = {"training-runner": ["nanogpt", "trl"], "gpu-renting": ["hf"]}
    assert [load_spec(one, ()).framework for one in examples] == expected[skill.parent.name]
