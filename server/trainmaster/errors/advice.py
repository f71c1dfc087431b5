"""Commands in advice, as the face that shows it has them.

Whatever advises names a command by `core/protocol/command.py`: its words, apart from the text. A
command line shows them with the program and the home that it needs, and an MCP server the call of
the tool that does the same, where it offers that tool and the tool has these parameters. To a user
elsewhere it names the tool also for what only a shell does, as waiting for hours, and says of other
commands where they run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.protocol.command import Named, command, line_of, span_of, with_commands

_HOME, _RUN = "--home", "run_id"
_GROUPS = frozenset({"hosts", "alerts", "keeper", "mcp-tokens"})
# Parameters that are lists: of what stands between commas, or repeated; and numbers.
_COMMAS = frozenset({"until", "keep"})
_LISTS = frozenset({"set", "key", *_COMMAS})
_NUMBERS = frozenset({"limit", "points", "hours", "count", "from_step", "to_step", "at"})


@dataclass(frozen=True, slots=True)
class _Call:
    """The tool that does what a command does.

    `places`: its parameters for the command's arguments, in order; "" for one that it has no use
    for. `repeats`: the last of them takes several. `options`: for the command's options. `flags`:
    for those without a value. `means`: the arguments that a word stands for, "" the command itself.
    """

    tool: str
    places: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    repeats: bool = False
    means: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def job_option(host: str, option: str, value: str | None) -> str:
    """The command that changes what a cluster's jobs ask for, as text carries it; None: the option
    is left to the cluster."""
    return command("hosts set", host, f"--{option}", "" if value is None else value)


_HOST_AND_SET = {"--host": "host", "--set": "set"}
_KEY = {"--idempotency-key": "idempotency_key"}
# Commands without a tool are missing here.
CALLS: Mapping[str, _Call] = {
    "overview": _Call("overview", options={"--cursor": "cursor"}),
    "plan": _Call("plan_run", ("spec",), {**_HOST_AND_SET, "--on": "on"}),
    "launch": _Call(
        "launch",
        ("spec",),
        {**_HOST_AND_SET, **_KEY},
        means={"--smoke": {"rehearse": "first"}, "--smoke=only": {"rehearse": "only"}},
    ),
    "rehearse": _Call(
        "launch", ("spec",), {**_HOST_AND_SET, **_KEY}, means={"": {"rehearse": "tiny"}}
    ),
    "render": _Call("render", ("spec", "folder"), _HOST_AND_SET),
    "attach": _Call(
        "attach",
        options={
            name: name[2:] for name in ("--host", "--log", "--tmux", "--screen", "--pid", "--name")
        }
        | {"--from": "start", "--ends-after": "ends_after", **_KEY},
    ),
    "adopt": _Call(
        "adopt",
        ("folder",),
        {
            **_HOST_AND_SET,
            **_KEY,
            "--spec": "spec",
            "--data": "data",
            "--name": "name",
            "--from": "start",
            "--python": "python",
        },
    ),
    "runs": _Call(
        "list_runs",
        options={name: name[2:] for name in ("--state", "--label", "--limit", "--cursor")},
    ),
    "status": _Call("get_run", ("run_id",), flags={"--detail": "detail"}),
    "logs": _Call(
        "tail_log",
        ("run_id",),
        {"--stream": "stream", "--cursor": "cursor", "--grep": "grep"},
    ),
    "metrics": _Call(
        "query_metrics",
        ("run_id",),
        {
            "--key": "key",
            "--points": "points",
            "--since": "since",
            "--from": "from_step",
            "--to": "to_step",
            "--at": "at",
        },
    ),
    "plot": _Call("plot_metrics", ("run_id",), {"--key": "key", "--x": "x"}),
    "wait": _Call(
        "wait_for_event",
        ("run_id",),
        {"--until": "until", "--cursor": "cursor", "--timeout": ""},
        repeats=True,
    ),
    "inspect": _Call("inspect_run", ("run_id",), flags={"--allow-py-spy": "allow_py_spy"}),
    "diagnose": _Call(
        "diagnose",
        ("run_id",),
        {"--cursor": "cursor"},
        flags={"--all": "everything", "--speed": "speed"},
    ),
    "checkpoints": _Call("list_checkpoints", ("run_id",), flags={"--verify": "verify"}),
    "stop": _Call("stop", ("run_id",), flags={"--after-session": "after_session"}),
    "resume": _Call(
        "resume",
        ("run_id",),
        {**_HOST_AND_SET, **_KEY, "--apply": "apply", "--from": "start"},
    ),
    "fetch": _Call("fetch_files", ("run_id", "pattern", "")),
    "clean": _Call("clean_run", ("run_id",), {"--keep": "keep"}),
    "provision": _Call(
        "provision",
        ("offer",),
        {"--hours": "hours", "--name": "name", "--region": "region", "--spec": "spec", **_KEY},
    ),
    "release": _Call("release", ("instance",), flags={"--force": "force"}),
    "hosts": _Call("list_hosts"),
    "hosts check": _Call("list_hosts", ("check",)),
    "hosts add": _Call(
        "add_host",
        ("name", "address"),
        {"--root": "root", "--cache": "cache", "--key": "key", "--jump": "jump"},
    ),
    "costs": _Call("costs"),
    "offers": _Call(
        "list_offers", options={name: name[2:] for name in ("--gpu", "--count", "--spec")}
    ),
}
# What one option alone is called, in advice on the call that was just made.
_PARAMETERS = {
    "--from": "start",
    "--allow-py-spy": "allow_py_spy",
    "--cursor": "cursor",
    "--data": "data",
    "--ends-after": "ends_after",
    "--host": "host",
    "--key": "key",
    "--log": "log",
    "--pid": "pid",
    "--python": "python",
    "--root": "root",
    "--screen": "screen",
    "--set": "set",
    "--since": "since",
    "--spec": "spec",
    "--tmux": "tmux",
    "--to": "to",
    "--transport": "transport",
}


@dataclass(frozen=True, slots=True)
class Face:
    """Who shows the advice. `program`: the words that begin a command line of this program for this
    home. `tools`: those that an MCP server offers, None for a command line. `is_remote`: who reads
    it has no shell on this machine."""

    program: tuple[str, ...]
    tools: Collection[str] | None = None
    is_remote: bool = False


_shown_by: ContextVar[Face | None] = ContextVar("face", default=None)


@contextmanager
def shown_by(face: Face) -> Iterator[None]:
    """Within, advice is worded for `face`."""
    token = _shown_by.set(face)
    try:
        yield
    finally:
        _shown_by.reset(token)


def for_face(text: str) -> str:
    """The advice `text` with its commands as the face that shows it has them; as it stands where
    nobody has said which that is. Advice that is a command and nothing else is shown without the
    marks of code."""
    face = _shown_by.get()
    if face is None:
        return text

    def shown(named: Named, span: str) -> str:
        code, where = _worded(face, named)
        if code is None:
            return span
        return (code if span == text else span_of(code)) + where

    return with_commands(text, shown)


def with_short_program(text: str) -> str:
    """JSON with the words that begin each command line as short as can be: how much of an answer
    is shown does not depend on the folders of the program and the home."""
    face = _shown_by.get()
    program = line_of(face.program) if face else ""
    return text.replace(json.dumps(program)[1:-1], "trainmaster") if program else text


def waiting_from(cursor: str, advice: str) -> str:
    """The advice, by which a run is waited for from here on: no event is missed between calls."""

    def shown(named: Named, span: str) -> str:
        is_wait = named.words[:1] == ("wait",) and "--until" in named.words
        if not is_wait or "--cursor" in named.words:
            return span
        return command(*named.words, "--cursor", cursor, in_shell=named.in_shell)

    return with_commands(advice, shown)


def waits(advice: str) -> bool:
    """Whether an advice is a wait, and nothing else."""
    spans: list[str] = []

    def shown(named: Named, span: str) -> str:
        spans.extend([span] if named.words[:1] == ("wait",) else [])
        return span

    with_commands(advice, shown)
    return spans == [advice]


def call_of(words: Sequence[str], tools: Collection[str]) -> tuple[str, dict[str, Any]] | None:
    """The tool among `tools` that does what the command of these words does, and its arguments;
    None where there is none, or it lacks one of these options."""
    name, rest = _name(words)
    call = CALLS.get(name)
    if call is None or call.tool not in tools:
        return None
    arguments = _arguments(call, rest)
    if arguments is None or (_RUN in call.places and _RUN not in arguments):
        return None  # such as a speed that is stated without a run
    return call.tool, arguments


def _name(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command, with its group, and the words behind it."""
    if not words:
        return "", ()
    grouped = " ".join(words[:2])
    if words[0] in _GROUPS and len(words) > 1:
        return grouped, words[2:]
    return words[0], words[1:]


def _arguments(call: _Call, words: Sequence[str]) -> dict[str, Any] | None:
    arguments: dict[str, Any] = dict(call.means.get("", {}))
    places = iter(call.places)
    left = iter(words)
    for word in left:
        if word in call.means:
            arguments |= call.means[word]
            continue
        if not word.startswith("--"):
            parameter: str | None = next(places, None)
            value: Any = word
            if parameter is None and call.repeats:
                parameter, value = call.places[-1], [*_listed(arguments[call.places[-1]]), word]
        elif word in call.flags:
            parameter, value = call.flags[word], True
        else:
            parameter, value = call.options.get(word), next(left, "")
        if parameter is None:
            return None
        if parameter:
            _put(arguments, parameter, value)
    return arguments


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _put(arguments: dict[str, Any], parameter: str, value: Any) -> None:
    if parameter in _COMMAS:
        value = [part for part in value.split(",") if part]
    elif parameter in _LISTS:
        value = [*arguments.get(parameter, ()), value]
    elif isinstance(value, str) and re.fullmatch(r"[0-9]+", value) and parameter in _NUMBERS:
        value = int(value)
    arguments[parameter] = value


def _worded(face: Face, named: Named) -> tuple[str | None, str]:
    """The code that names a command or an option on this face, and what is said behind it; None:
    it stays as it stands."""
    if named.is_option:
        return (None if face.tools is None else _parameter(named.words)), ""
    if named.words[:1] == (_HOME,):
        return None, ""
    is_shells = named.in_shell and not face.is_remote
    call = None if is_shells or face.tools is None else call_of(named.words, face.tools)
    if call is None:
        where = " on the server's machine" if face.is_remote else ""
        return line_of([*face.program, *named.words]), where
    tool, arguments = call
    shown = ", ".join(f"{name}={_value(value)}" for name, value in arguments.items())
    return f"{tool}({shown})", ""


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _parameter(words: Sequence[str]) -> str | None:
    """An option and its value, as a parameter; None where no tool has it."""
    name = _PARAMETERS.get(words[0])
    if name is None or len(words) < 2:
        return name
    return f"{name}={_value([words[1]] if name in _LISTS else words[1])}"
