"""The type of a dialect: where its lines begin, and a function that reads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainer_runtime.core.diagnosis.parse.points import Reading


@dataclass(frozen=True, slots=True)
class Dialect:
    """One framework's lines.

    `signs` are literals of which every line of it has at least one; they are searched first.
    `head` is an expression (no groups) for the beginning of one of its lines; it may match
    anywhere, since loggers add prefixes and ranks glue lines together. `read` gets the text from
    there to the next head or the line's end, and returns None for text of another dialect. A
    reading must depend on digits only through the numbers that it reports, so that lines of the
    same shape can be read in bulk; lines for which that is not so are detected and read singly.
    `needles`: literals of lines that have none of the common words of `line.NEEDLES`, without which
    a line is not read. `counts`: its steps are batches, which are not those of a training behind
    the word `Validation`.
    """

    name: str
    signs: tuple[bytes, ...]
    head: bytes
    read: Callable[[bytes], Reading | None]
    counts: bool = False
    needles: tuple[bytes, ...] = ()


def at_word(expression: bytes) -> bytes:
    """`\\b` and the expression, which begins with a letter: the engine then searches that letter
    instead of trying every place, which takes a third of the time."""
    letter = expression[:1]
    return letter + rb"(?<=\b" + letter + rb")" + expression[1:]


def at_line(expression: bytes) -> bytes:
    """`^` and the expression, in the same way."""
    letter = expression[:1]
    return letter + b"(?<=^" + letter + b")" + expression[1:]
