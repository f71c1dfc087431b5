"""What is counted of the texts and rows of a sample, in bounded memory."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any

from trainer_runtime.core.inputs.row_form import ACCEPTED, problem_of_row
from trainer_runtime.core.inputs.utf8_text import Utf8Text
from trainmaster.runs.data.data_files import DataFile

MOST_BYTES, MOST_ROWS, MOST_FILES = 16 << 20, 20_000, 64
_MOST_VALUES = 2_000_000
_MOST_RECORDS = 200_000
_MOST_FIELDS = 100
_MOST_TEXT = 400_000
_EXAMPLES, _EXAMPLE_CHARACTERS = 3, 2000
# Shorter paragraphs, such as headings and rules, recur in any text.
_LEAST_COMPARED = 40
_MOST_PROBLEMS = 5
_REPLACEMENT, _MARK = "\N{REPLACEMENT CHARACTER}".encode(), b"\xef\xbb\xbf"
_CONTINUATION = bytes(range(0x80, 0xC0))


@dataclass(slots=True)
class Counted:
    """What the files themselves say, or what the sample makes likely. `held_bytes`: of texts,
    about how many bytes there are, decompressed."""

    rows: int | None = None
    is_estimated: bool = False
    tokens: int | None = None
    note: str | None = None
    held_bytes: int | None = None


@dataclass(slots=True)
class Sample:
    """`record_bytes`: of the texts of all rows, as UTF-8; `pretrain_bytes`: of their column
    `text`; `read_bytes`: what was read for them. `problems`: by method, of the first row from which
    it can't learn. `damaged`: why records could not be read, each once. `is_cut`: some rows were
    too long to be read, and what follows them was not read either. `has_more_fields`: than are
    counted. `values`: of all rows, by commas."""

    read_bytes: int = 0
    rows: int = 0
    record_bytes: int = 0
    pretrain_bytes: int = 0
    repeated: int = 0
    compared: int = 0
    odd: Counter[str] = field(default_factory=Counter)
    lengths: array[int] = field(default_factory=lambda: array("q"))
    examples: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    text: str = ""
    values: int = 0
    is_cut: bool = False
    has_more_fields: bool = False
    present: Counter[str] = field(default_factory=Counter)
    types: dict[str, Counter[str]] = field(default_factory=dict)
    _seen: set[bytes] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        return self.rows >= MOST_ROWS or self.values >= _MOST_VALUES

    def take(self, other: Sample) -> None:
        """Become what another process has read."""
        for part in fields(self):
            setattr(self, part.name, getattr(other, part.name))

    def add_bytes(self, data: bytes, *, is_begin: bool, is_end: bool) -> str:
        """The text of a part of a file, whose odd bytes are counted."""
        if is_begin and data.startswith(_MARK):
            self.odd["byte_order_mark"] += 1
        self.odd["nul"] += data.count(b"\0")
        self.odd["replacement_character"] += data.count(_REPLACEMENT)
        self.odd["crlf"] += data.count(b"\r\n")
        decoder = Utf8Text()
        if not is_begin:  # the part may begin within a character
            data = data[:4].lstrip(_CONTINUATION) + data[4:]
        text = decoder.decode(data, final=is_end)
        self.odd["undecodable"] += decoder.undecodable
        return text

    def add_paragraphs(self, text: str, *, is_begin: bool, is_end: bool) -> None:
        """The paragraphs of a part of a file. What the part cuts off at its begin and end counts as
        text, and not as a paragraph."""
        self._add_sample(text)
        paragraphs = text.replace("\r\n", "\n").split("\n\n")
        for paragraph in paragraphs[not is_begin : len(paragraphs) - (not is_end)]:
            if stripped := paragraph.strip():
                shown = stripped if len(stripped) >= _LEAST_COMPARED else ""
                self._add_record(stripped, shown, shown)

    def add_row(self, row: Mapping[str, Any], place: str, shown: str) -> None:
        """`shown`: the row as an example has it; `place`: where it stands."""
        self.rows += 1
        for name, value in row.items():
            if name in self.types or len(self.types) < _MOST_FIELDS:
                self.present[name] += 1
                self.types.setdefault(name, Counter())[type_of(value)] += 1
            else:
                self.has_more_fields = True
        for kind in ACCEPTED:
            if kind not in self.problems and (problem := problem_of_row(kind, row)) is not None:
                self.problems[kind] = f"{place}: {problem}"
        text = row.get("text")
        if isinstance(text, str):
            self.pretrain_bytes += len(text.encode(errors="replace"))
        whole = "\n".join(_texts(row))
        self.record_bytes += len(whole.encode(errors="replace"))
        self._add_sample(whole)
        self._add_record(whole, whole or shown, shown)

    def add_damaged(self, problem: str) -> None:
        if len(self.damaged) < _MOST_PROBLEMS:
            self.damaged.append(problem)

    def _add_sample(self, text: str) -> None:
        if len(self.text) < _MOST_TEXT:
            self.text += f"{text[: _MOST_TEXT - len(self.text)]}\n"

    def _add_record(self, text: str, compared: str, shown: str) -> None:
        """`compared`: by what another one is the same; nothing for those that recur in any text."""
        if len(self.examples) < _EXAMPLES and shown:
            self.examples.append(shown[:_EXAMPLE_CHARACTERS])
        if len(self.lengths) >= _MOST_RECORDS:
            return
        self.lengths.append(len(text))
        if compared:
            normalised = " ".join(compared.lower().split())
            digest = blake2b(normalised.encode(errors="replace"), digest_size=8).digest()
            self.compared += 1
            self.repeated += digest in self._seen
            self._seen.add(digest)


def chosen_files(files: Sequence[DataFile]) -> list[DataFile]:
    """Of many files some, evenly."""
    full = [file for file in files if file.size_bytes]
    return full[:: max(1, -(-len(full) // MOST_FILES))]


def type_of(value: object) -> str:
    """The type of a row's value, as JSON has it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, (list, tuple)):
        kinds = {type_of(item) for item in value[:20] if not isinstance(item, (list, tuple))}
        return f"list of {kinds.pop()}s" if len(kinds) == 1 else "list"
    return type(value).__name__


def _texts(value: object) -> Iterator[str]:
    """The texts in a value, in order; rows are at most a hundred levels deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
