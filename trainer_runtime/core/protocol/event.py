"""One line of a file of events, as `protocol.decode` gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from trainer_runtime.core.decoding import Fields

Line = TypeVar("Line")


class Event(NamedTuple):
    """`seq` counts the lines of its file, `t` is in Unix seconds, `document` the whole object.

    A tuple, since one is made for every step of every run.
    """

    seq: int
    t: float
    kind: str
    document: Mapping[str, object]

    @property
    def step(self) -> int | None:
        """The step that it is about; None where it is about none."""
        step = self.document.get("step")
        return step if type(step) is int else None

    @property
    def values(self) -> Mapping[str, object]:
        """Metrics by key: numbers, or the names of those that are not finite."""
        values = self.document.get("values")
        return values if isinstance(values, dict) else {}

    @property
    def fields(self) -> Fields:
        """Its fields by their types."""
        return Fields(self.document, self.kind)

    def read_by(self, kinds: Mapping[str, Callable[[Fields], Line]]) -> Line | None:
        """The line by its kind; None for a kind that is not among them, or fields that such a line
        never has: it is of another version, or its file is damaged."""
        read = kinds.get(self.kind)
        if read is None:
            return None
        try:
            return read(self.fields)
        except ValueError:
            return None

    @classmethod
    def of(
        cls,
        seq: int,
        t: float,
        kind: str,
        step: int | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> Event:
        """The event of a line that had these `fields`, and a step where there is one."""
        document = dict(fields or {})
        if step is not None:
            document["step"] = step
        return cls(seq, t, kind, document)
