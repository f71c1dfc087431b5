"""`docs/cli.md`, made from the commands themselves.

`python -m trainmaster.cli.reference > docs/cli.md` writes it again; a test compares it with the
code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.main import get_command

from trainmaster.cli.command_table import commands_for
from trainmaster.cli.examples import EXAMPLES
from trainmaster.errors.error_codes import CODES

_INTRODUCTION = """\
# The command line

Made from the code by `python -m trainmaster.cli.reference`.

Every command takes `--json`, which prints exactly its answer as one line of JSON on stdout, in the
shape that the MCP tool of the same name gives. An error is then
`{"error": {"code", "message", "fix", "retryable"}}`, also on stdout; without `--json` it is text on
stderr, `CODE: what happened` and a line `Fix: what to do`.

`RUN` is a run's id, or its name where that is unique. Everything lies under `TRAINMASTER_HOME`
(default: the platform's folder for user data), or under the folder of `trainmaster --home DIR
COMMAND …`: advice names commands with the program and the home that they need. `NO_COLOR` turns
colours and table borders off, and `TRAINMASTER_DEBUG=1` prints the traceback of an `INTERNAL` error
to stderr.

| exit code | meaning |
|---|---|
| 0 | done; for `wait`: the wanted event came |
| 1 | an error; for `doctor` and `hosts check`: a check failed; for `tick`: something of it |
| 2 | bad usage |
| 3 | `wait`: the run ended otherwise |
| 4 | `wait`: time-out |
| 130 | interrupted by Ctrl-C; a training continues |
"""


def reference() -> str:
    """The whole page."""
    sections = [_section(name, command) for name, command in every_command().items()]
    return "\n".join([_INTRODUCTION, *sections, _error_codes()])


def every_command() -> dict[str, Any]:
    """All commands by the words that call them, those below another (`hosts add`) too."""
    commands: dict[str, Any] = {}
    waiting = [("", get_command(commands_for()))]
    while waiting:
        words, command = waiting.pop(0)
        if words and not command.hidden:
            commands[words] = command
        below = getattr(command, "commands", {})
        waiting[:0] = [(f"{words} {name}".strip(), item) for name, item in below.items()]
    return commands


def _section(name: str, command: Any) -> str:
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    usage = " ".join(["trainmaster", name, *(item.metavar for item in arguments)])
    rows = "\n".join(_row(item) for item in command.params)
    shown = "".join(f"\n    {example}" for example in EXAMPLES.get(name, ()))
    examples = f"{shown}\n" if shown else ""
    return f"## `{usage}`\n\n{command.help}\n\n| | | default |\n|---|---|---|\n{rows}\n{examples}"


def _row(item: Any) -> str:
    words = [item.metavar] if item.param_type_name == "argument" else list(_option(item))
    named = " ".join(f"`{_escaped(word)}`" for word in words)
    default = "" if item.default in (None, False, "") else f"`{item.default}`"
    return f"| {named} | {_escaped(item.help or '')} | {'required' if item.required else default} |"


def _option(item: Any) -> Iterable[str]:
    yield from item.opts
    if item.metavar:
        yield item.metavar


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _error_codes() -> str:
    rows = "\n".join(f"| `{code}` | {row.meaning} |" for code, row in CODES.items())
    return f"## Error codes\n\n| code | meaning |\n|---|---|\n{rows}\n"


if __name__ == "__main__":
    print(reference(), end="")
