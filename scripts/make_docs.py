"""Writes what is made from the code: reference pages, the skills' evaluations as JSON,
and the extension of Gemini's CLI."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.benchmarks.accuracy import section as accuracy
from support.benchmarks.table import page as benchmarks
from support.evals.portable import write_evals
from support.mcp.token_page import page as tokens

from scripts.manifests import write_gemini_extension
from scripts.pages import commands, diagnosis, frameworks, settings, spec, tools

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = {
    "benchmarks.md": benchmarks,
    "cli.md": commands.reference,
    "diagnosis.md": lambda: diagnosis.reference() + accuracy(),
    "frameworks.md": frameworks.reference,
    "mcp.md": tools.reference,
    "settings.md": settings.reference,
    "spec.md": spec.reference,
    "tokens.md": tokens,
}


def main() -> None:
    """Write each page into docs/, the evaluations beside their cases, the extension."""
    for name, make in PAGES.items():
        (DOCS / name).write_text(make())
    write_evals()
    write_gemini_extension()


if __name__ == "__main__":
    main()
