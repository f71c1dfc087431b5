"""The errors of JSON that does not hold what it has to."""

from __future__ import annotations


class DecodingError(ValueError):
    """A value that can't be used: `place` is its file or answer, `field` its dotted name there.

    `field` is empty where the text as a whole is at fault.
    """

    def __init__(self, place: str, field: str, problem: str) -> None:
        self.place = place
        self.field = field
        self.problem = problem
        super().__init__(": ".join(part for part in (place, field) if part) + f" {problem}")


class LimitError(DecodingError):
    """JSON that is larger, deeper or farther out of range than anything that we write."""
