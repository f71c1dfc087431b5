"""What a dialect is: where its lines begin, and a function that reads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainer_runtime.core.diagnosis.parse.points import Reading


@dataclass(frozen=True, slots=True)
class Dialect:
    """One framework's lines.

    `signs` are literals of which every line of it has at least one; they are looked for first.
    `head` is an expression (no groups) that finds where one of its lines begins; it need not be the
    start of the text, since loggers put prefixes before it and ranks glue lines together.
    `read` gets the text from there to the next head or the line's end; None: none of its own.
    A reading must depend on digits only through the numbers that it reports, so that lines of the
    same shape can be read in bulk; what depends on them otherwise is found out and read singly.
    """

    name: str
    signs: tuple[bytes, ...]
    head: bytes
    read: Callable[[bytes], Reading | None]
