"""Writes what is made from the code: reference pages, the skills' evaluations as JSON,
and the extension of Gemini's CLI."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from manifests import write_gemini_extension
from support.benchmarks.accuracy import section as accuracy
from support.benchmarks.table import page as benchmarks
from support.evals.portable import write_evals
from support.mcp.token_page import page as tokens

from trainmaster.cli.reference import reference as commands
from trainmaster.mcp.reference import reference as tools
from trainmaster.plan.spec import mapping_markdown as frameworks
from trainmaster.plan.spec import reference_markdown as spec
from trainmaster.runs.diagnosis.reference import reference as diagnosis
from trainmaster.settings.settings import reference as settings

PAGES = {
    "benchmarks.md": benchmarks,
    "cli.md": commands,
    "diagnosis.md": lambda: diagnosis() + accuracy(),
    "frameworks.md": frameworks,
    "mcp.md": tools,
    "settings.md": settings,
    "spec.md": spec,
    "tokens.md": tokens,
}


def main() -> None:
    """Write each page into docs/, the evaluations beside their cases, the extension."""
    folder = Path(__file__).resolve().parent.parent / "docs"
    for name, make in PAGES.items():
        (folder / name).write_text(make())
    write_evals()
    write_gemini_extension()


if __name__ == "__main__":
    main()
