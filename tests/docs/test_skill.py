"""Skills: what they name exists, and their commands run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.docs.skill_commands import SkillCommands
from support.errors.command_lines import refusal
from support.mcp.tokens import tokens

from trainmaster.errors.error_codes import CODES
from trainmaster.mcp.toolsets import TOOLSETS
from trainmaster.plan.spec import load_spec
from trainmaster.settings.yaml12 import load_yaml

_ROOT = Path(__file__).resolve().parents[2]
_SKILLS = _ROOT / "skills"
_NAMES = {"training-runner", "training-doctor", "training-planner", "remote-gpu"}
_TOOLS = {one.name for tools in TOOLSETS.values() for one in tools}
_MOST_TOKENS = 1_800
_NOT_ERRORS = {"TRAINMASTER_HOME", "TRAINMASTER_DEBUG", "WANDB_API_KEY"}


@pytest.fixture(params=sorted(path.name for path in _SKILLS.iterdir()))
def skill(request: pytest.FixtureRequest) -> Path:
    return _SKILLS / str(request.param) / "SKILL.md"


def parts(skill: Path) -> tuple[dict[str, str], str]:
    """The frontmatter and the body."""
    _, frontmatter, body = skill.read_text().split("---\n", 2)
    loaded = load_yaml(frontmatter)
    assert isinstance(loaded, dict)
    return loaded, body


def texts(skill: Path) -> Iterator[str]:
    """The body and the references."""
    yield parts(skill)[1]
    yield from (page.read_text() for page in sorted(skill.parent.glob("references/*.md")))


def quoted(skill: Path) -> list[str]:
    """What stands between backticks within a line, examples of specs left out."""
    whole = re.sub(r"```.*?```", "", "\n".join(texts(skill)), flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", whole)


def commands(skill: Path) -> list[str]:
    """The words behind `trainmaster` of each command line."""
    return [text.partition(" ")[2] for text in quoted(skill) if text.startswith("trainmaster ")]


def test_there_are_four_skills() -> None:
    assert {path.name for path in _SKILLS.iterdir()} == _NAMES


def test_the_frontmatter_says_what_and_when(skill: Path) -> None:
    frontmatter, _ = parts(skill)
    assert set(frontmatter) == {"name", "description"}
    assert frontmatter["name"] == skill.parent.name
    assert 0 < len(frontmatter["description"]) <= 1024
    assert "Use it when " in frontmatter["description"]


def test_the_shortest_path_comes_first_and_the_rest_is_in_references(skill: Path) -> None:
    _, body = parts(skill)
    headings = re.findall(r"^## (.+)$", body, re.MULTILINE)
    assert headings[0] == "Shortest path"
    assert headings[-1] == "More"
    assert tokens(body) <= _MOST_TOKENS
    linked = set(re.findall(r"\(references/([a-z]+\.md)\)", body))
    assert linked == {page.name for page in skill.parent.glob("references/*.md")}
    assert linked


def test_every_command_line_is_one_that_is_taken(skill: Path) -> None:
    named = commands(skill)
    assert len(named) > 5
    assert [(line, why) for line in named if (why := refusal(shlex.split(line)))] == []


def test_every_tool_error_code_and_field_named_exists(skill: Path) -> None:
    words = quoted(skill)
    assert _TOOLS & set(words)
    codes = {text for text in words if re.fullmatch(r"[A-Z]+(_[A-Z]+)+|INTERNAL", text)}
    assert codes - _NOT_ERRORS <= set(CODES)
    fields = {text for text in words if re.fullmatch(r"[a-z]+(_[a-z]+)+", text)}
    answers = sorted((_ROOT / "server/trainmaster/answers").glob("*.py"))
    pages = [*sorted((_ROOT / "docs").glob("*.md")), *answers]
    known = set(re.findall(r"[a-z_]+", "\n".join(page.read_text() for page in pages)))
    assert fields - known == set()


def test_the_example_specs_are_valid_ones(skill: Path) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", "\n".join(texts(skill)), re.DOTALL)
    frameworks = {load_spec(one, ()).framework for one in examples}
    assert frameworks or skill.parent.name == "training-doctor"


def test_every_command_runs_against_the_debug_host(home: Path, tmp_path: Path) -> None:
    named = {command for name in _NAMES for command in commands(_SKILLS / name / "SKILL.md")}
    rehearsed = SkillCommands(home, tmp_path)
    rehearsed.run_all(sorted(named))
    assert len(rehearsed.ran) > 40
