"""Mutations of JSON documents that keep their structure, but for one place."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any


def nested(depth: int) -> str:
    """Lists within each other, as text: no encoder writes what is so deep."""
    return "[" * depth + "]" * depth


# As JSON text, since some of it is beyond what a value can hold.
_ODD = (
    "null", "true", "-1", "0", "1.5", "9007199254740993", str(2**63), str(2**64), "1" * 400,
    "1e308", "-1e308", "1e999", '"NaN"', '"-Infinity"', "NaN", '""', '"\\ud800"', '"\\u0000"',
    '"\\u202e\\u200b\\u001b[2J"', '"../../etc/passwd"', "[]", "{}", '[{"a":[1]}]', nested(17),
    nested(900), '"' + "x" * 100_000 + '"', '"' + "x" * (1 << 20) + '"',
)  # fmt: skip
_HOLE = "\x00hole\x00"


def mutated(events: Sequence[Mapping[str, Any]], seed: random.Random) -> bytes:
    """The events as lines, with one to three mutations: a value replaced, a field removed or
    added, a line repeated, moved, torn or inserted."""
    lines = [json.dumps(event) for event in events]
    for _ in range(seed.randint(1, 3)):
        at = seed.randrange(len(lines))
        lines[at : at + 1] = _of_line(lines[at], lines, seed)
    return "".join(f"{line}\n" for line in lines).encode(errors="surrogatepass")


def mutated_line(text: str, seed: random.Random) -> str:
    """One document with a mutation at a random place."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text  # mutated before
    places = list(_places(document)) if isinstance(document, (dict, list)) else []
    if not places:
        return text
    holder, key = seed.choice(places)
    match seed.randrange(4):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[f"{key}_of_it"] = _HOLE
        case _:
            holder[key] = _HOLE
    return json.dumps(document).replace(json.dumps(_HOLE), seed.choice(_ODD))


def _of_line(line: str, lines: Sequence[str], seed: random.Random) -> list[str]:
    match seed.randrange(8):
        case 0:
            return [line] * seed.choice([2, 200])
        case 1:
            return [line, seed.choice(lines)]
        case 2:
            return [line[: seed.randrange(len(line) + 1)]]
        case 3:
            return [line, seed.choice([nested(900), nested(100_000), "null", "\ufeff{}", "{"])]
        case _:
            return [mutated_line(line, seed)]


def _places(document: Any) -> Any:
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(inner):
        yield document, key
        if isinstance(value, (dict, list)) and value:
            yield from _places(value)
