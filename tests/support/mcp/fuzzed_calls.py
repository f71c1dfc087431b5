"""Calls of tools at random: most of the arguments as a tool expects them, the others as bad as can
be. A seed gives the same calls again."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from support.errors.hostile_answers import HOSTILE

Call = tuple[str, dict[str, Any]]

SPEC = """\
name: fuzzed
framework: nanogpt
model: {n_layer: 1, n_head: 2, d_model: 32}
data: {sources: [{path: corpus}], seq_len: 32}
batch: {tokens: 256}
steps: 20
host: gpu1
"""
_DEEP: Any = []
for _ in range(100):  # a client's serializer takes about 250
    _DEEP = [_DEEP]
_TEXTS = (
    "", " ", "\0", "a\0b", "\ud800", "\udcff.log", HOSTILE, "../../etc/passwd", "/dev/zero",
    "a" * 300, "/" + "b" * 300, "-", "--help", "%s%n{0}", "[link=x]", "$(id)", "NaN", "1e308",
    "null", "[1]", '{"a": 1}', "[" * 500, "[" * 500 + "]" * 500, "∞", "name: [", "name: *a",
    "steps: 1e308",
)  # fmt: skip
_NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 7, -0.0, 0.5, 1e308, -1e308, float("nan"), float("inf"), 2**31, 2**63, -(2**64),
    10**400, True, "7", "x", [], {},
)  # fmt: skip
_ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    1.5,
    [],
    {},
    [[]],
    {"a": {"b": []}},
    _DEEP,
    [None],
    [HOSTILE],
)
_HUGE = "x" * 10_000_000
_REPLACED = (
    "", "null", "-1", "1e308", ".nan", "[]", "{}", "9" * 390, '"\\ud800"', '"\\0"', "!!int 3", "*x",
    "&x 1", "[" * 60, '"' + "z" * 300 + '"', "~/../..", "host:/x", "\x1b[31m",
)  # fmt: skip
# Where they are not given, a call takes long or reaches this machine.
_ALWAYS = {
    "wait_for_event": "timeout_s", "attach": "host", "launch": "host", "add_host": "address",
    "adopt": "host",
}  # fmt: skip
_RARE = frozenset(
    {
        "plot_metrics",
        "inspect_run",
        "add_host",
        "list_hosts",
        "plan_run",
        "launch",
        "attach",
        "adopt",
        "resume",
    }
)


class FuzzedCalls:
    """`known`: by parameter, values that mean something; of `spec` whole ones, to be mutated. Their
    last line, the host, stays. `often`: a tool for every third call."""

    def __init__(
        self,
        seed: int,
        schemas: Mapping[str, Mapping[str, Any]],
        known: Mapping[str, Sequence[Any]],
        often: str | None = None,
    ) -> None:
        self._random = random.Random(seed)
        self._schemas = schemas
        self._known = {**known, "timeout_s": (0, 0.01), "set": _sets()}
        self._often = often
        self._seen: list[str] = []

    def see(self, answer: Mapping[str, Any]) -> None:
        """Take in what an answer gave: cursors and ids are passed on."""
        found = [value for key, value in answer.items() if key in ("cursor", "run_id")]
        found += [one["id"] for one in answer.get("findings", ()) if "id" in one]
        self._seen = [*self._seen, *found][-50:]

    def next(self) -> Call:
        """The next call."""
        pick = self._random
        name = self._tool()
        schema = self._schemas[name]
        arguments = {}
        for parameter, described in schema["properties"].items():
            is_needed = parameter in schema.get("required", ()) or parameter == _ALWAYS.get(name)
            if pick.random() < (0.97 if is_needed else 0.3):
                arguments[parameter] = self._argument(parameter, described)
        if (always := _ALWAYS.get(name)) and not isinstance(arguments.get(always), (str, int)):
            arguments[always] = pick.choice(self._known[always])
        if pick.random() < 0.03:
            arguments[pick.choice(_TEXTS)] = pick.choice(_ODD)
        if pick.random() < 0.01:
            name = pick.choice(_TEXTS).encode(errors="replace").decode()  # clients send no other
        return name, arguments

    def _tool(self) -> str:
        pick, names = self._random, list(self._schemas)
        if self._often is not None and pick.random() < 0.3:
            return self._often
        name = pick.choice(names)
        while name in _RARE and pick.random() < 0.9:
            name = pick.choice(names)
        return name

    def _argument(self, parameter: str, described: Mapping[str, Any]) -> Any:
        pick = self._random
        chance = pick.random()
        if parameter in ("timeout_s", "address", "host"):
            return pick.choice(self._known[parameter])
        if parameter == "spec" and chance < 0.8:
            return self._spec()
        if chance < 0.72 and (parameter in self._known or self._seen):
            one = pick.choice([*self._known.get(parameter, ()), *self._seen[-5:]])
            return [one] if described.get("type") == "array" and pick.random() < 0.5 else one
        if chance < 0.721:
            return _HUGE
        if chance < 0.95:
            return self._by_type(described)
        return pick.choice(_ODD)

    def _by_type(self, described: Mapping[str, Any]) -> Any:
        pick, kind = self._random, described.get("type")
        if "enum" in described:
            return pick.choice([*described["enum"], *_TEXTS])
        if kind == "array":
            return [pick.choice(_TEXTS) for _ in range(pick.choice((0, 1, 2, 5, 3000)))]
        if kind == "boolean":
            return pick.choice((True, False, "yes", 2))
        return pick.choice(_NUMBERS if kind in ("integer", "number") else (*_TEXTS, self._text()))

    def _text(self) -> str:
        return "".join(
            chr(self._random.randrange(0x110000)) for _ in range(self._random.randrange(40))
        )

    def _spec(self) -> str:
        """A whole spec, mutated at one or two places or not at all."""
        pick = self._random
        lines = pick.choice(self._known["spec"]).splitlines()
        for _ in range(pick.choice((0, 1, 1, 2))):
            at = pick.randrange(len(lines) - 1)  # the host stays
            key, _, _ = lines[at].partition(":")
            lines[at] = f"{key}: {pick.choice(_REPLACED)}"
        return "\n".join(lines)


def _sets() -> list[str]:
    paths = ("steps", "optimizer.lr", "model.n_layer", "name", "data.sources.0.path", "nope", "")
    return [f"{path}={value}" for path in paths for value in _REPLACED]
