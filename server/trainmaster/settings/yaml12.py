"""Reads YAML with the core scalars of version 1.2, and without its surprising features.

PyYAML follows version 1.1, where `2e9` is a string, `24:00:00` is 86400 and `no` is false. Here
`2e9` is a number, the other two are strings. Anchors, aliases, tags, repeated keys and keys that
are not strings are refused, and so is what is larger than 1 MB or deeper than 40 levels.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode

from trainmaster.errors.errors import SpecError

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
# Python refuses to read longer ones by itself, and no field takes a number near that size.
_MAX_INT_CHARACTERS = 400

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
# Order matters: every whole number is a valid float too.
_SCALARS = (("null", _NULL), ("bool", _BOOL), ("int", _INT), ("float", _FLOAT))
_TAG = "tag:yaml.org,2002:"


def load_yaml(text: str) -> Any:
    """The one document in `text`, as dicts with string keys, lists and scalars; None if empty.

    Raises:
        SpecError: SPEC_TOO_LARGE, DUPLICATE_KEY, or SPEC_NOT_READABLE with line and column.
    """
    # Characters first: encoding a text that is far too large would itself cost.
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise too_large()
    try:
        return _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        parts = [part for part in (error.context, error.problem) if part]
        raise _unreadable(" ".join(parts), error.problem_mark or error.context_mark) from None
    except yaml.YAMLError as error:
        raise _unreadable(" ".join(str(error).split()), None) from None


def dump_yaml(value: Any) -> str:
    """`value` as block YAML in its own order, read alike under YAML 1.1 and 1.2."""
    return yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=100,
    )


def too_large() -> SpecError:
    return SpecError(
        "SPEC_TOO_LARGE",
        f"The YAML text is larger than {MAX_BYTES:,} bytes.",
        "Keep data out of the spec; name files or folders by their path instead.",
    )


class _Loader(yaml.SafeLoader):
    """SafeLoader with the rules above."""

    # Not the 1.1 rules of the base class; filled below.
    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _unreadable("anchors and aliases are not accepted", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise _unreadable("tags are not accepted", event.start_mark)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _unreadable(f"nested deeper than {MAX_DEPTH} levels", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode) or key.tag != _TAG + "str":
                shown = getattr(key, "value", "")
                hint = f"; quote it: '{shown}'" if isinstance(shown, str) and shown else ""
                raise _unreadable(f"a key that is not a string{hint}", key.start_mark)
            if key.value in seen:
                raise _duplicate(key)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that also quotes the strings which only version 1.2 would take for numbers."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> ScalarNode:
    # Unescaped, they would be read as ends of lines.
    style = '"' if any(letter in text for letter in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _construct_text(loader: _Loader, node: ScalarNode) -> str:
    text = str(node.value)
    if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    # JSON writes letters beyond the first plane as two escapes, which PyYAML does not join.
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise _unreadable("half of a surrogate pair", node.start_mark) from None


def _construct_bool(loader: _Loader, node: ScalarNode) -> bool:
    return str(node.value).lower() == "true"


def _construct_int(loader: _Loader, node: ScalarNode) -> int:
    text = str(node.value)
    if len(text) > _MAX_INT_CHARACTERS:
        raise _unreadable("a number with too many digits", node.start_mark)
    if text.startswith(("0o", "0x")):
        return int(text, 0)
    return int(text)


def _construct_float(loader: _Loader, node: ScalarNode) -> float:
    text = str(node.value).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _unreadable(problem: str, mark: Mark | None) -> SpecError:
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    return SpecError(
        "SPEC_NOT_READABLE",
        f"The YAML text can't be read{where}: {problem}.",
        "Write plain YAML 1.2: mappings with string keys, lists and scalars, without anchors, "
        "aliases and tags.",
    )


def _duplicate(key: ScalarNode) -> SpecError:
    mark = key.start_mark
    return SpecError(
        "DUPLICATE_KEY",
        f"The key `{key.value}` occurs twice in one mapping, the second time at line "
        f"{mark.line + 1}, column {mark.column + 1}.",
        f"Keep one of the two `{key.value}`.",
        field=str(key.value),
    )


for _name, _pattern in _SCALARS:
    # Anchored by PyYAML's `match` at the start only, hence the end here.
    _whole = re.compile(rf"(?:{_pattern.pattern})\Z")
    _Loader.add_implicit_resolver(_TAG + _name, _whole, None)
    if _name != "null":
        _Dumper.add_implicit_resolver(_TAG + _name, _whole, None)
_Loader.add_constructor(_TAG + "str", _construct_text)
_Loader.add_constructor(_TAG + "bool", _construct_bool)
_Loader.add_constructor(_TAG + "int", _construct_int)
_Loader.add_constructor(_TAG + "float", _construct_float)
