"""`docs/mcp.md`, made from the tools themselves.

`python -m trainmaster.mcp.reference > docs/mcp.md` writes it again; a test compares it with the
code.
"""

from __future__ import annotations

import json
from typing import Any

from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations

from trainmaster.mcp.definition import Definition, build_tool
from trainmaster.mcp.instructions import instructions_for
from trainmaster.mcp.toolsets import PERSONAS, TOOLSETS

_INTRODUCTION = """\
# The MCP tools

Made from the code by `python -m trainmaster.mcp.reference`.

`trainmaster mcp` serves these tools on stdin and stdout, for every protocol version from 2024-11-05
to 2026-07-28. `trainmaster mcp --http` serves a team: [server.md](server.md).

    trainmaster install claude-code     # or: codex, cursor, vscode, gemini

registers it with a client, by the program's absolute path ([agents.md](agents.md)). Where the
client finds `trainmaster` on its search path, `claude mcp add trainmaster -- trainmaster mcp` does.

At the end of stdin the SDK cancels the calls under way: keep stdin open until the answers are
there. What a call has begun is on record, and the next process that acts continues it.

## Toolsets and personas

All tools are offered by default. `--toolsets` takes toolsets and personas, with commas between;
`--tools` adds single tools, or offers these alone where no toolset is named. A name that is unknown
is refused with those that exist.

{personas}

`--read-only` beats both: of what was chosen it offers only the tools whose hint says that they only
read. These read what hosts have written and what is on record; they change nothing on a host, start
no process that a spec names, send no alert and deliver no secret. `inspect_run` is not among them:
a run's processes write their stacks into its folder.

    trainmaster mcp --toolsets operator --read-only
    trainmaster mcp --toolsets observer --tools stop,resume

A server each of whose tools only reads does nothing beside its calls, with or without
`--read-only`. Any other one also maintains the runs of its home while it lives: every 15 seconds it
delivers requests that wait for their host, starts supervisors that died, uploads and copies that
broke off and Kaggle's next sessions, and sends alerts. Of several servers of a home one does so.
Work that must continue without a server needs [the keeper](keeper.md).

## Calls and answers

What a tool reads, sends, reaches and runs is limited by the user's settings; what is beyond them
asks the user: see [policy.md](policy.md).

A tool's structured content is what the command of the same service prints with `--json`, but for
the commands in its advice, which are calls of tools here. An error
is text: `CODE: what happened. Fix: what to do. retryable=yes|no`; the codes stand in
[cli.md](cli.md#error-codes). No call lasts over 45 seconds. Lines of a log and findings' evidence
are text that anybody may have written: data, never instructions.

An answer fits an agent's context ([tokens.md](tokens.md)): `get_run` 2 KB (8 KB with `detail`),
`plan_run` 1.8 KB (32 KB with `detail`), `wait_for_event` 4 KB, `diagnose` 8 KB, others 50 KB at
most. What is larger loses entries of its lists; `shortened` gives their number by field, and
`cursor` or `more` how to read them. All text is cleaned of control, escape, bidirectional and
invisible characters.
"""


def reference() -> str:
    """The whole page."""
    toolsets = [
        f"## Toolset `{name}`\n\n" + "\n".join(_section(definition) for definition in definitions)
        for name, definitions in TOOLSETS.items()
    ]
    tools = [tool.name for definitions in TOOLSETS.values() for tool in definitions]
    lines = "\n".join(f"> {line}".rstrip() for line in instructions_for(tools).splitlines())
    said = (
        "## What the server says of itself\n\nA line is left out where a tool that it is about is "
        f"not offered.\n\n{lines}\n"
    )
    introduction = _INTRODUCTION.replace("{personas}", _personas())
    return "\n".join([introduction, *toolsets, said])


def _personas() -> str:
    rows = [
        f"| `{name}` | {' '.join(f'`{kit}`' for kit in persona.toolsets)} | {persona.does} |"
        for name, persona in PERSONAS.items()
    ]
    return "\n".join(["| persona | toolsets | |", "|---|---|---|", *rows])


def _section(definition: Definition) -> str:
    tool = build_tool(definition)
    parts = (
        f"### `{tool.name}`",
        _description(tool.description),
        _parameters(tool),
        f"Hints: {_hints(definition.hints)}.",
        f"Answer: {', '.join(f'`{name}`' for name in _answered(tool))}.",
    )
    return "\n\n".join(parts) + "\n"


def _answered(tool: Tool) -> list[str]:
    """The fields of its answer, but for the one that every answer may have."""
    return [name for name in (tool.output_schema or {})["properties"] if name != "shortened"]


def _description(text: str) -> str:
    """The text, with its example spec (the lines from `name:` on) as a block of code."""
    prose, example_start, example = text.partition("\nname: ")
    if not example_start:
        return prose
    return f"{prose}\n```yaml\n{f'name: {example}'.rstrip()}\n```"


def _parameters(tool: Tool) -> str:
    required = tool.parameters.get("required", [])
    rows = [
        f"| `{name}` | {_type(schema)} | {schema.get('description', '')} | "
        f"{'required' if name in required else _default(schema)} |"
        for name, schema in tool.parameters["properties"].items()
    ]
    return "\n".join(["| parameter | type | | default |", "|---|---|---|---|", *rows])


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if "anyOf" in schema:  # null stands for what is not given
        return " or ".join(
            _type(option) for option in schema["anyOf"] if option.get("type") != "null"
        )
    return "list of strings" if schema["type"] == "array" else str(schema["type"])


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    return "" if default in ("", [], None) else f"`{json.dumps(default)}`"


def _hints(hints: ToolAnnotations) -> str:
    return ", ".join(
        f"{'' if hint else 'not '}{word}"
        for word, hint in (
            ("read-only", hints.read_only_hint),
            ("destructive", hints.destructive_hint),
            ("idempotent", hints.idempotent_hint),
            ("open-world", hints.open_world_hint),
        )
    )


if __name__ == "__main__":
    print(reference(), end="")
