"""What a text costs a model, without its vocabulary."""

from __future__ import annotations

import regex

# How o200k parts text before it encodes words: what is JSON here is about one token a piece.
# https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_PIECES = regex.compile(
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LETTERS_PER_TOKEN = 8


def tokens(text: str) -> int:
    """About as many as o200k makes of it; long words count for more than one."""
    return sum(1 + len(piece) // _LETTERS_PER_TOKEN for piece in _PIECES.findall(text))
