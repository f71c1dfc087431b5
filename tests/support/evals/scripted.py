"""An agent without a model. It knows what a client shows of the tools (names, descriptions, hints,
schemas), and follows `next_step`; nothing of any case.

It begins with the tool whose description is about the prompt, where the prompt names what that tool
needs, else with `overview`, as the server's instructions say. Then it makes the calls that
`next_step` names, in their order, each once. A tool that changes something is called only if the
prompt asks for what the tool does. To wait is left to the monitor, which wakes it up.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.types import Tool
from support.evals.matching import Matcher, stems
from support.evals.session import Session, same

Call = tuple[str, dict[str, Any]]

_MOST_CALLS = 8
_MOST_WAKES = 3
_SURE = 2.2  # of the score of a description
_WAITING = "wait_for_event"
_KEY = "evaluation"
# What people say for it; all else is in the tools' own descriptions.
_SAID_FOR = {
    "fix": ("stop", "resume"),
    "repair": ("stop", "resume"),
    "going again": ("resume",),
    "continue": ("resume",),
    "start": ("launch",),
    "train": ("launch",),
    "fine-tune": ("launch",),
    "rent": ("provision",),
    "give back": ("release",),
    "download": ("fetch_files",),
    "notify": ("create_alert",),
    "watch": ("attach",),
}
_FORBIDS = re.compile(r"\b(don't|do not|without|only|just|never|before anything)\b", re.IGNORECASE)


@dataclass
class ScriptedAgent:
    """`made`: the calls so far, none of which it repeats. `queue`: those that come next."""

    prompt: str
    known: dict[str, Any] = field(default_factory=dict)
    made: list[Call] = field(default_factory=list)
    queue: list[Call] = field(default_factory=list)
    waits: bool = False
    acted: bool = False

    async def work(self, session: Session) -> None:
        """Do what the prompt asks for, as far as it gets."""
        tools = {tool.name: tool for tool in session.tools}
        self.known |= _named_in(self.prompt)
        self.queue.append(self._first(tools))
        wakes = 0
        while len(self.made) < _MOST_CALLS:
            if self.waits and self.acted and wakes < _MOST_WAKES and "run_id" in self.known:
                self.waits, wakes = False, wakes + 1
                line = await session.wake(self.known["run_id"])
                self._heed(line or "", tools)
            if not self.queue:
                return
            name, arguments = self.queue.pop(0)
            self.made.append((name, arguments))
            self.acted = self.acted or not _reads(tools[name])
            _, answer = await session.call(name, arguments)
            if not answer:
                return
            self._learn(answer)
            self._heed(str(answer.get("next_step", "")), tools)

    def _first(self, tools: Mapping[str, Tool]) -> Call:
        matcher = Matcher.of({name: f"{name} {tool.description}" for name, tool in tools.items()})
        for score, name in matcher.ranked(self.prompt):
            if score < _SURE:
                break
            call = self._filled(name, {}, tools)
            if call is not None:
                return call
        return "overview", {}

    def _heed(self, advice: str, tools: Mapping[str, Tool]) -> None:
        """Queue the calls that an advice names, unless what is queued already is not done."""
        named = list(_calls_in(advice, tools))
        self.waits = _WAITING in advice or " wait " in advice or " tick" in advice
        if self.queue:
            return
        for name, arguments in named:
            call = self._filled(name, arguments, tools)
            if call is None or name == _WAITING:
                continue
            if same(call) not in map(same, self.made):
                self.queue.append(call)

    def _filled(
        self, name: str, arguments: Mapping[str, Any], tools: Mapping[str, Tool]
    ) -> Call | None:
        """The call with what is known for what is open; None where something is missing, or the
        prompt doesn't ask for it."""
        tool = tools[name]
        if not _reads(tool) and not self._asks_for(tool):
            return None
        known = self.known
        properties = tool.input_schema["properties"]
        given = {
            key: known.get(key) if _is_open(value) else value for key, value in arguments.items()
        }
        for key in tool.input_schema.get("required", ()):
            given.setdefault(key, known.get(key))
        if "idempotency_key" in properties:
            given["idempotency_key"] = _KEY
        if None in given.values():
            return None
        if "spec" in properties and name == "list_offers" and "spec" in self.known:
            given["spec"] = self.known["spec"]
        return name, given

    def _asks_for(self, tool: Tool) -> bool:
        if _FORBIDS.search(self.prompt):
            return False
        said = [
            tools
            for words, tools in _SAID_FOR.items()
            if re.search(rf"\b{words}\b", self.prompt, re.IGNORECASE)
        ]
        return any(tool.name in tools for tools in said) or bool(
            stems(tool.name) & stems(self.prompt)
        )

    def _learn(self, answer: Mapping[str, Any]) -> None:
        for key in ("run_id", "host", "instance"):
            if isinstance(answer.get(key), str):
                self.known[key] = answer[key]
        offers = answer.get("offers")
        if isinstance(offers, dict) and offers.get("offer"):
            self.known["offer"] = offers["offer"][0]


def _named_in(prompt: str) -> dict[str, Any]:
    """What a prompt names: files by their ending, a run, hours."""
    found: dict[str, Any] = {}
    if spec := re.search(r"\S+\.yaml", prompt):
        found["spec"] = spec[0]
    if run := re.search(r"\brun (?!of\b|is\b|has\b|that\b|on\b)([a-z][\w-]*)", prompt):
        found["run_id"] = run[1]
    if log := re.search(r"\S+\.log", prompt):
        found |= {"log": log[0], "run_id": log[0]}
    if instance := re.search(r"\binstance ([a-z][\w-]*)\b", prompt):
        found["instance"] = instance[1]
    if pattern := re.search(r"\b(final|best|latest)\b", prompt):
        found["pattern"] = pattern[1]
    if hours := re.search(r"(\d+) hours", prompt):
        found["hours"] = int(hours[1])
    return found


def _calls_in(advice: str, tools: Mapping[str, Tool]) -> Iterator[Call]:
    """The calls of tools in an advice, as `resume(run_id="r", apply="f:p")`."""
    for name, arguments in re.findall(r"\b([a-z_]+)\(([^()]*)\)", advice):
        if name not in tools:
            continue
        text = re.sub(r"\btrue\b", "True", re.sub(r"\bfalse\b", "False", arguments))
        try:
            call = ast.parse(f"f({text})", mode="eval").body
            assert isinstance(call, ast.Call)
            yield name, {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        except (SyntaxError, ValueError):
            continue


def _is_open(value: object) -> bool:
    """Whether advice leaves a value to its reader: SPEC, HOST, H."""
    return isinstance(value, str) and (value.isupper() or "..." in value)


def _reads(tool: Tool) -> bool:
    """Whether a tool may be called unasked: it reads, or it changes nothing that matters."""
    hints = tool.annotations
    assert hints is not None
    harmless = hints.idempotent_hint and not hints.destructive_hint and not hints.open_world_hint
    return bool(hints.read_only_hint or harmless)


async def scripted(session: Session, prompt: str) -> None:
    """An agent for `judge.play`."""
    await ScriptedAgent(prompt).work(session)
