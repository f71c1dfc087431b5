"""`docs/tokens.md`, made of the figures that the test has recorded."""

from __future__ import annotations

import json
from pathlib import Path

from support.mcp.answer_sizes import LARGEST

from trainmaster.mcp.toolsets import PERSONAS, TOOLSETS

FIGURES = Path(__file__).resolve().parents[2] / "golden" / "tokens.json"
_INTRODUCTION = """\
# What tools cost in tokens

Made by `scripts/make_docs.py` from the figures of `tests/mcp/test_tokens.py`, which measures them
with the vocabulary o200k and fails where a limit is passed. Other vocabularies count some percent
more or less. `UPDATE_GOLDEN=1 pytest tests/mcp/test_tokens.py` records the figures again.
"""


def page() -> str:
    """The whole page."""
    figures = json.loads(FIGURES.read_text())
    parts = [_INTRODUCTION, _of_the_list(figures["list"]), _of_answers(figures)]
    return "\n".join(parts)


def _of_the_list(listed: dict[str, tuple[int, int]]) -> str:
    rows = [
        f"| `{name}` | {len(tools)} | {_sum(listed, tools, 0)} | {_sum(listed, tools, 1)} |"
        for name, persona in PERSONAS.items()
        for tools in [
            [one.name for toolset in persona.toolsets for one in TOOLSETS[toolset]],
        ]
    ]
    each = [f"| `{name}` | {shown} | {output} |" for name, (shown, output) in listed.items()]
    return "\n".join(
        (
            "## The list of tools\n",
            "A client shows its model each tool's name, description and input schema; some show "
            "the\noutput schema, too. The whole list takes at most 4,000 tokens without it.\n",
            "| persona | tools | shown | output schemas |\n|---|---|---|---|",
            *rows,
            "\n| tool | shown | output schema |\n|---|---|---|",
            *each,
            "",
        )
    )


def _of_answers(figures: dict[str, dict[str, tuple[int, int]]]) -> str:
    rows = [
        f"| `{key.partition(': ')[0]}` | {key.partition(': ')[2]} | {size:,} | {limit:,} |"
        for key, (size, limit) in figures["answers"].items()
    ]
    most = [f"| `{name}` | {size:,} |" for name, size in figures["largest"].items()]
    return "\n".join(
        (
            "## Typical answers\n",
            "| tool | question | tokens | limit |\n|---|---|---|---|",
            *rows,
            "\n## Largest answers\n",
            "An answer that is full to its cap in bytes ([mcp.md](mcp.md#calls-and-answers)), with "
            f"text and\nnumbers in all its fields: at most {LARGEST:,} tokens, of which clients "
            "take no more from a call.\n",
            "| tool | tokens |\n|---|---|",
            *most,
            "",
        )
    )


def _sum(listed: dict[str, tuple[int, int]], tools: list[str], column: int) -> str:
    return f"{sum(listed[name][column] for name in tools if name in listed):,}"
