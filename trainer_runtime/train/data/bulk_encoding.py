"""Byte-level BPE of much text by tiktoken, where that provably gives the tokens of `tokenizers`.

tiktoken merges any neighbours that make a token, `tokenizers` those of its list of pairs. Both give
the same tokens of every text if

- pieces are split alike: by one of the patterns below, of characters that the two libraries put in
  the same classes;
- pairs are listed in the order of their tokens' numbers; and
- a token's bytes are merged to that token, or end as three others or more. Neighbours come about
  by the merges inside each of them alone, so those that make a token are the pair that is listed
  for it. Where a token's bytes end as two others, that would not hold, and tiktoken isn't used.

A text with a special token, or with other characters than these, is left to `tokenizers`, and so is
everything once a batch has differed.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from trainer_runtime.core.config import DataConfig
from trainer_runtime.core.files.tiktoken_encodings import CL100K, GPT2, O200K
from trainer_runtime.core.files.tokenizer_folder import BYTE, JSON_NAME, NONE
from trainer_runtime.core.frameworks import byte_tokenizer
from trainer_runtime.train.data.tokenizers import Encode, Tokenizer

# Below it, building the encoding takes longer than it saves.
LEAST_BYTES = 4 << 20
_CHECKED_BATCHES, _CHECKED_CHARACTERS = 8, 16 << 10
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
# The same languages without backtracking (tiktoken's own patterns, but for what ends a text).
_POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|NUMBER| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s*[\r\n]+|\s++$|\s+(?!\S)|\s"
)
# tiktoken's pattern by that of `tokenizers`.
_PATTERNS = {
    GPT2: r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    LLAMA3: _POSSESSIVE.replace("NUMBER", r"\p{N}{1,3}+"),
    QWEN2: _POSSESSIVE.replace("NUMBER", r"\p{N}"),
    CL100K: r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    O200K: O200K,
}
_CLASS = re.compile(r"\\p\{[A-Za-z]+\}|\\s")
_AT_ONCE = 4096  # both libraries are slower in longer texts
ODD_TEXTS = (
    "",
    " ",
    "  a   b\n\n \n c \r\n\td  ",
    "a'S b'll 'VE ’s '\u017f don''t",
    "1234567 ½ ² ٣٤٥ 1a2 a1",
    "Ünïcödé ñ e\u0301 \u0301\u0301 ﬁ ǅ ʰ ª 中文字 かな 한국어 ไทย हिन्दी",
    "👩\u200d👩\u200d👧 🏳️ \ufeff\u00a0\u2003\u2028\u0085\u200b\u3000",
    "!!! ... //\n/ \r\n\r\n--- #include <a>\n",
    "x" * 700 + " " * 300 + "\n" * 90 + "é" * 400,
    "\x00\x01\x7f\x80 \U000e0001\U0010ffff",
)


def in_bulk(
    tokenizer: Tokenizer, data: DataConfig, files: Mapping[str, Sequence[str]]
) -> Tokenizer:
    """The tokenizer with a faster way to the same tokens, where there is one and it pays."""
    size_bytes = sum(Path(file).stat().st_size for name in files for file in files[name])
    if data.tokenizer in (BYTE, NONE) or size_bytes < LEAST_BYTES:
        return tokenizer
    encode = fast_encode(Path(data.tokenizer), tokenizer.encode)
    return tokenizer if encode is None else replace(tokenizer, encode=encode)


def fast_encode(folder: Path, slow: Encode) -> FastEncode | None:
    """The tokens that `slow`, of the same folder, gives; None where tiktoken can't give them."""
    try:
        import tiktoken
        import tokenizers  # noqa: F401

        document = json.loads((folder / JSON_NAME).read_bytes())
    except (ImportError, OSError):
        return None
    pattern = _pattern(document)
    ranks = None if pattern is None else _ranks(document["model"])
    if pattern is None or ranks is None:
        return None
    encoding = tiktoken.Encoding(
        JSON_NAME, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
    )
    normalizes = document.get("normalizer") is not None
    disputed = _disputed(frozenset(_CLASS.findall(pattern)))
    special = [str(token["content"]) for token in document.get("added_tokens") or ()]
    odd = _class_of(disputed, normalizes=normalizes)
    fast = FastEncode(encoding, slow, odd, _by_beginning(special), normalizes)
    return fast if fast.is_equal_on(ODD_TEXTS) else None


@dataclass(slots=True)
class FastEncode:
    """Encodes by tiktoken what it can, and the rest by `slow`. The beginnings of the first batches
    are encoded by both.

    Texts are left out that have a character which `odd` finds, or a token of `special`, which are
    by how they begin, and, where it `normalizes`, those that are not in Unicode's form C.
    """

    encoding: Any
    slow: Encode
    odd: re.Pattern[str]
    special: Mapping[str, Sequence[str]]
    normalizes: bool
    unchecked: int = _CHECKED_BATCHES
    is_used: bool = True

    def __call__(self, texts: Sequence[str], /) -> Sequence[Sequence[int]]:
        if not self.is_used:
            return self.slow(texts)
        if self.unchecked > 0:
            self.unchecked -= 1
            if not self.is_equal_on(_beginning(texts)):
                self.is_used = False
                return self.slow(texts)
        return self._encode(texts)

    def is_equal_on(self, texts: Sequence[str]) -> bool:
        """Whether both ways give the same tokens."""
        return [list(tokens) for tokens in self._encode(texts)] == [
            list(tokens) for tokens in self.slow(texts)
        ]

    def _encode(self, texts: Sequence[str]) -> Sequence[Sequence[int]]:
        is_left = [self._is_left(text) for text in texts]
        others = [text for text, left in zip(texts, is_left, strict=True) if not left]
        threads = min(len(others), _cores())
        if threads > 1:
            fast = iter(self.encoding.encode_ordinary_batch(others, num_threads=threads))
        else:
            fast = map(self.encoding.encode_ordinary, others)
        if not any(is_left):
            return list(fast)
        slow = iter(self.slow([text for text, left in zip(texts, is_left, strict=True) if left]))
        return [next(slow if left else fast) for left in is_left]

    def _is_left(self, text: str) -> bool:
        for beginning, tokens in self.special.items():
            if beginning in text and any(token in text for token in tokens):
                return True
        if text.isascii():
            return False
        if self.normalizes and not unicodedata.is_normalized("NFC", text):
            return True
        return self.odd.search(text) is not None


def _beginning(texts: Sequence[str]) -> Sequence[str]:
    """The first texts of a batch, at least one."""
    lengths = accumulate(map(len, texts))
    return texts[: 1 + sum(length <= _CHECKED_CHARACTERS for length in lengths)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _pattern(document: Mapping[str, Any]) -> str | None:
    """tiktoken's pattern for a tokenizer's document; None where none is known to be the same."""
    if (document.get("normalizer") or {"type": "NFC"}) != {"type": "NFC"}:
        return None
    splitter = document.get("pre_tokenizer") or {}
    steps = splitter.get("pretokenizers") if splitter.get("type") == "Sequence" else [splitter]
    *splits, last = steps or [{}]
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space", True):
        return None
    if last.get("use_regex", True):
        return None if splits else _PATTERNS[GPT2]
    if len(splits) != 1 or splits[0].get("type") != "Split":
        return None
    way = splits[0].get("behavior"), splits[0].get("invert")
    if way not in (("Isolated", False), ("Removed", True)):
        return None
    return _PATTERNS.get(str((splits[0].get("pattern") or {}).get("Regex")))


def _ranks(model: Mapping[str, Any]) -> dict[bytes, int] | None:
    """The bytes of tokens with their numbers, by which tiktoken merges as the model does; None
    where it would not."""
    from tokenizers import models

    unusual = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    if model.get("type") != "BPE" or any(model.get(name) for name in unusual):
        return None
    vocabulary, letters = model["vocab"], byte_tokenizer.letters()
    if not all(letter in vocabulary for letter in letters):
        return None
    pairs = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in model["merges"]]
    numbers = [vocabulary[left + right] for left, right in pairs]
    if any(before > after for before, after in pairwise(numbers)):
        return None
    merging = models.BPE(vocabulary, pairs)
    byte_of = {letter: byte for byte, letter in enumerate(letters)}
    ranks = {}
    for token, number in vocabulary.items():
        if not byte_of.keys() >= set(token):
            continue  # a special token: no text is ever merged to it
        parts = len(merging.tokenize(token))
        if parts == 2 and model.get("ignore_merges"):
            return None
        if parts == 1 or model.get("ignore_merges"):
            ranks[bytes(byte_of[letter] for letter in token)] = number
    return ranks


def _by_beginning(tokens: Iterable[str]) -> dict[str, list[str]]:
    """By their first two characters: models reserve hundreds that begin alike."""
    found: dict[str, list[str]] = {}
    for token in tokens:
        found.setdefault(token[:2], []).append(token)
    return found


def _class_of(disputed: Iterable[int], *, normalizes: bool) -> re.Pattern[str]:
    """Finds these characters and surrogates; where texts are normalized, also characters that this
    Python's Unicode doesn't know."""
    characters = {*disputed, *range(0xD800, 0xE000)}
    if normalizes:
        characters.update(code for code in _assignable() if unicodedata.category(chr(code)) == "Cn")
    return re.compile(f"[{_ranges(characters)}]")


def _ranges(characters: Iterable[int]) -> str:
    """Inside the brackets of a regular expression."""
    found: list[list[int]] = []
    for code in sorted(characters):
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in found)


@cache
def _disputed(classes: frozenset[str]) -> frozenset[int]:
    """The characters that are of a class for one of the libraries and not for the other, and the
    one of which case folding makes an ASCII letter of a contraction."""
    import tiktoken
    from tokenizers import Regex, pre_tokenizers

    codes = list(_assignable())
    texts = ["".join(map(chr, codes[at : at + _AT_ONCE])) for at in range(0, len(codes), _AT_ONCE)]
    bytes_alone = {bytes([byte]): byte for byte in range(256)}
    disputed = {0x17F}
    for pattern in sorted(classes):
        theirs = pre_tokenizers.Split(Regex(pattern), "removed")
        ours = tiktoken.Encoding(
            pattern, pat_str=pattern, mergeable_ranks=bytes_alone, special_tokens={}
        )
        for text in texts:
            others = {char for piece, _ in theirs.pre_tokenize_str(text) for char in piece}
            matched = bytes(ours.encode_ordinary(text)).decode()
            disputed.update(map(ord, (set(text) - others) ^ set(matched)))
    return frozenset(disputed)


def _assignable() -> Iterable[int]:
    """The code points of the planes that have, or may get, characters; without surrogates."""
    for plane in (0, 1, 2, 3, 14):
        for code in range(plane << 16, (plane + 1) << 16):
            if not 0xD800 <= code <= 0xDFFF:
                yield code
