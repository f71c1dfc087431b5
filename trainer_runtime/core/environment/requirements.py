"""Requirement lines against installed versions: as much of PEP 440 and PEP 508 as can be sure.

Whatever is not plainly understood (URLs, markers, extras, options, arbitrary equality) counts as
not satisfied: then pip, which knows the whole grammar, is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_CLAUSE = re.compile(r"\s*(==|!=|<=|>=|~=|<|>)\s*([^\s,;]+)\s*\Z")
_VERSION = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<pre_number>\d*))?"
    r"(?P<post>(?:-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*))?"
    r"(?P<dev>[-_.]?dev[-_.]?\d*)?"
    r"(?:\+[A-Za-z0-9]+(?:[-_.][A-Za-z0-9]+)*)?\Z",
    re.IGNORECASE,
)
_PRE_RANKS = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_FINAL = (3, 0)
_NOT_DEV = 1 << 30

Key = tuple[tuple[int, ...], tuple[int, int], int, int]


def normalised(name: str) -> str:
    """A package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_lines(text: str) -> list[str]:
    """The lines of a requirements file that say something, continued ones joined."""
    lines = [
        re.sub(r"(^|\s)#.*$", "", line).strip() for line in text.replace("\\\n", " ").split("\n")
    ]
    return [line for line in lines if line]


def name_of(line: str) -> str | None:
    """The normalised name of the package that a line asks for; None for options and paths."""
    match = _NAME.match(line)
    # What stands behind `@` or `;` is an address or a condition; a slash before makes it a path.
    if match is None or "/" in re.split(r"[@;]", line, maxsplit=1)[0]:
        return None
    return normalised(match.group())


def satisfied(line: str, installed: Mapping[str, str]) -> bool:
    """Whether the installed versions (by normalised name) surely meet a requirement."""
    name = name_of(line)
    version = installed.get(name) if name is not None else None
    if version is None:
        return False
    match = _NAME.match(line)
    rest = line[match.end() :].strip() if match else ""
    if not rest:
        return True
    return all(_meets(version, clause) for clause in rest.strip("()").split(","))


def unsatisfied(lines: Iterable[str], installed: Mapping[str, str]) -> list[str]:
    """Those of the lines that the installed versions don't surely meet; options are left out."""
    return [line for line in lines if not line.startswith("-") and not satisfied(line, installed)]


def release_of(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with; none where it has no such beginning."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match.group().split("."))) if match else ()


def _meets(version: str, clause: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        return False
    operator, wanted = match.groups()
    if wanted.endswith(".*"):
        return _meets_prefix(version, operator, wanted[:-2])
    have, want = _key(version), _key(wanted)
    if have is None or want is None:
        return False
    if operator == "~=":
        return have >= want and _same_beginning(version, release_of(wanted)[:-1])
    if operator in ("<", ">"):
        # `<2.9` leaves out 2.9rc1 as well, `>2.9` 2.9.post1: of one release nothing is sure.
        return have[0] != want[0] and (have < want if operator == "<" else have > want)
    return {
        "==": have == want and ("+" not in wanted or version == wanted),
        "!=": have != want,
        "<=": have <= want,
        ">=": have >= want,
    }[operator]


def _meets_prefix(version: str, operator: str, prefix: str) -> bool:
    numbers = release_of(prefix)
    if operator not in ("==", "!=") or ".".join(map(str, numbers)) != prefix:
        return False
    return _same_beginning(version, numbers) == (operator == "==")


def _same_beginning(version: str, numbers: tuple[int, ...]) -> bool:
    release = release_of(version)
    return bool(numbers) and (*release, *(0,) * len(numbers))[: len(numbers)] == numbers


def _key(version: str) -> Key | None:
    """What versions are ordered by, their local part (`+cpu`) left out; None if not understood."""
    match = _VERSION.match(version)
    if match is None:
        return None
    release = tuple(int(part) for part in match["release"].split("."))
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    post = _number(match["post"]) if match["post"] is not None else -1
    dev = _number(match["dev"]) if match["dev"] is not None else _NOT_DEV
    pre = _FINAL
    if match["pre"] is not None:
        pre = (_PRE_RANKS[match["pre"].lower()], int(match["pre_number"] or 0))
    elif match["dev"] is not None and match["post"] is None:
        pre = (-1, 0)
    return release, pre, post, dev


def _number(text: str) -> int:
    digits = re.search(r"\d+", text)
    return int(digits.group()) if digits else 0
