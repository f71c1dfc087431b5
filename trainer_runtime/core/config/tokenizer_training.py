"""How the host trains a tokenizer: `data.tokenizer: {train: bpe, size: 32000}`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

from trainer_runtime.core.decoding import JsonRecord

# The folder of a trained tokenizer inside the entry of the data that it cuts.
FOLDER = "tokenizer"
LARGEST_SIZE = 1 << 20
USUAL_CHARACTERS = 256
# Raised when the same text gives other tokens than before, so that old entries are not met.
_VERSION = 1
_BYTES = 256
_END = "<|endoftext|>"
_MOST_BYTES_PER_TOKEN = 4.0


@dataclass(frozen=True, slots=True)
class TokenizerKind:
    """`special`: the special tokens by id, the first of which ends a text; `unknown`: the one for
    characters without a token, None where bytes are the alphabet. `least`: the smallest vocabulary,
    `holds` what it is made of."""

    special: tuple[str, ...]
    unknown: str | None
    least: int
    holds: str


KINDS: Mapping[str, TokenizerKind] = {
    "bpe": TokenizerKind((_END,), None, _BYTES + 1, "the 256 bytes and the end of a text"),
    "unigram": TokenizerKind((_END,), None, 2 * _BYTES, "the 256 bytes and as many pieces of text"),
    "wordpiece": TokenizerKind(
        ("[SEP]", "[UNK]", "[PAD]", "[CLS]", "[MASK]"),
        "[UNK]",
        512,
        "five special tokens, and each character at the begin of a word and inside one",
    ),
    "char": TokenizerKind(
        (_END, "<|unknown|>"), "<|unknown|>", 3, "the end of a text, the unknown token, a character"
    ),
}


@dataclass(frozen=True, slots=True)
class TokenizerTraining(JsonRecord):
    """`kind` is one of `KINDS`; `size`: of the vocabulary as declared, which the training may fill
    in part."""

    kind: str
    size: int

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits of all that decides the tokens beside the sources."""
        described = f"{_VERSION} {self.kind} {self.size} {KINDS[self.kind].special}"
        return hashlib.sha256(described.encode()).hexdigest()[:16]

    @property
    def bytes_per_token(self) -> float:
        """An estimate before the training: of English, 1.5 with 512 tokens, 4 with 16,000."""
        if self.kind == "char":
            return 1.0
        return min(_MOST_BYTES_PER_TOKEN, 1 + 0.55 * math.log2(self.size / _BYTES))
