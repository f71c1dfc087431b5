"""How much of a log was parsed, with samples of the rest."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from trainer_runtime.core.diagnosis.line_prefix import without_prefix
from trainer_runtime.core.diagnosis.parse.number_tokens import ZEROS
from trainer_runtime.core.protocol.text import shown

_MAX_SAMPLES = 20
_LONGEST_SAMPLE = 240
_READ_BYTES = 4 * _LONGEST_SAMPLE
_MAX_SHAPES = 2000
_MAX_LINES = 10_000
_FEWEST_NUMBERS = 2
_NUMBER = re.compile(rb"\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?")
_OF_ERRORS = re.compile(r'\s*(?:File "|Traceback |-+> |(?:\w+\.)*\w*(?:Error|Exception|Warning): )')
_NO_DIGITS = bytes(byte for byte in range(256) if not 48 <= byte < 58 and byte != 10)
_WITHOUT_DIGITS = dict.fromkeys(range(48, 58))


@dataclass(slots=True)
class Coverage:
    """`lines_with_numbers`, and how many of them were read as metrics, events or progress.

    `lines_taught` are those that patterns of the user read, `forms` the lines of each form of log.
    `samples` are lines that mention a loss, step or epoch and were not parsed: untrusted text of
    the log, sanitized. `keys_left_out` counts points of keys beyond the maximum, `too_long` lines
    beyond the maximum length, `within_epochs` those with a batch of an epoch of unknown length.
    """

    lines_with_numbers: int = 0
    lines_read: int = 0
    lines_taught: int = 0
    too_long: int = 0
    keys_left_out: int = 0
    within_epochs: int = 0
    samples: list[str] = field(default_factory=list)
    forms: dict[str, int] = field(default_factory=dict)
    _shapes: set[bytes] = field(default_factory=set, repr=False, compare=False)  # tried already

    @property
    def share(self) -> float:
        """The share of lines with numbers that were read: 0 to 1; 1 where there are none."""
        if not self.lines_with_numbers:
            return 1.0
        return min(1.0, self.lines_read / self.lines_with_numbers)

    def count(self, form: str, lines: int, *, is_taught: bool) -> None:
        """Note that lines of a form were read."""
        self.forms[form] = self.forms.get(form, 0) + lines
        self.lines_taught += lines if is_taught else 0

    def sample(self, line: bytes) -> None:
        """Keep a line that was not parsed, if it differs in kind from those kept."""
        if len(self.samples) >= _MAX_SAMPLES:
            return
        shape = line[:_READ_BYTES].translate(ZEROS)
        if shape in self._shapes or b"0" not in line.translate(ZEROS):
            return
        if len(self._shapes) >= _MAX_SHAPES:
            self._shapes.clear()
        self._shapes.add(shape)
        self._keep(shown(line[:_READ_BYTES])[:_LONGEST_SAMPLE])

    def _keep(self, text: str) -> None:
        if len(self.samples) < _MAX_SAMPLES and _kind(text) not in map(_kind, self.samples):
            self.samples.append(text)

    def to_dict(self) -> dict[str, Any]:
        return {
            "lines_with_numbers": self.lines_with_numbers,
            "lines_read": self.lines_read,
            "lines_taught": self.lines_taught,
            "too_long": self.too_long,
            "keys_left_out": self.keys_left_out,
            "within_epochs": self.within_epochs,
            "samples": list(self.samples),
            "forms": dict(self.forms),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Coverage:
        return cls(**data)


def frequent_lines(data: bytes, most: int = 3) -> list[str]:
    """A line of each of the most frequent kinds with several numbers: what a log's metrics may be,
    where nothing of it was understood; no frames and messages of errors. Untrusted text of the
    log, sanitized.
    """
    first: dict[bytes, bytes] = {}
    kinds: Counter[bytes] = Counter()
    kind_of: dict[bytes, bytes] = {}  # by shape
    lines = data.splitlines()[:_MAX_LINES]
    for line, zeros in zip(lines, data.translate(ZEROS).splitlines(), strict=False):
        shape = zeros[:_READ_BYTES]
        kind = kind_of.get(shape)
        if kind is None:
            kind = kind_of[shape] = _NUMBER.sub(b"0", shape)
        if kind.count(b"0") >= _FEWEST_NUMBERS:
            first.setdefault(kind, line)
            kinds[kind] += 1
    texts = (shown(first[kind][:_READ_BYTES])[:_LONGEST_SAMPLE] for kind, _ in kinds.most_common())
    return [*islice(filter(_has_numbers_of_its_own, texts), most)]


def _has_numbers_of_its_own(text: str) -> bool:
    bare = without_prefix(text)
    return _OF_ERRORS.match(bare) is None and any(map(str.isdigit, bare))


def with_numbers(data: bytes) -> int:
    """The number of lines with a digit."""
    return len(data.translate(None, _NO_DIGITS).split())


def _kind(text: str) -> str:
    if text.isascii():
        return text.translate(_WITHOUT_DIGITS)
    return "".join(letter for letter in text if not letter.isdigit())
