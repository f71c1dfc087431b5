"""The pages name paths that exist, and their links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PREFIXES = ("", "server/trainmaster/", "trainer_runtime/")
_FILE = re.compile(r"[\w/.]+\.(py|sh|j2)")
_FOLDER = re.compile(r"[\w.]+/[\w/.]+/")


def pages() -> Iterator[Path]:
    names = ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "AGENTS.md")
    yield from (_ROOT / name for name in names)
    yield from sorted((_ROOT / "docs").rglob("*.md"))


# A file that a recipe of docs/extending.md creates.
_CREATED = re.compile(r"^### \d\. `[^`\n]+`", re.MULTILINE)


def test_every_path_that_a_page_names_exists() -> None:
    missing = [
        f"{page.relative_to(_ROOT)}: {name}"
        for page in pages()
        for name in sorted(set(re.findall(r"`([^`\n]+)`", _CREATED.sub("", page.read_text()))))
        if ("/" in name and _FILE.fullmatch(name)) or _FOLDER.fullmatch(name)
        if not any((_ROOT / prefix / name).exists() for prefix in _PREFIXES)
    ]
    assert missing == []


def test_every_link_leads_to_a_file() -> None:
    broken = [
        f"{page.relative_to(_ROOT)}: {link}"
        for page in pages()
        for link in re.findall(r"\]\(([^)#h][^)#]*)", page.read_text())
        if not (page.parent / link).exists()
    ]
    assert broken == []


def test_the_architecture_fits_in_twelve_kilobytes() -> None:
    assert (_ROOT / "ARCHITECTURE.md").stat().st_size <= 12 * 1024
