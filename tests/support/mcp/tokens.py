"""What a text costs a model, by a real vocabulary: o200k, which lies in the package's wheel."""

from __future__ import annotations

import json
from functools import cache
from typing import Any


def tokens(text: str) -> int:
    """The number of tokens; the name of a special token counts as text."""
    return len(_vocabulary().encode(text, disallowed_special=()))


def tokens_of(answer: object) -> int:
    """Of an answer, as its client gets it: compact JSON."""
    return tokens(json.dumps(answer, ensure_ascii=False, separators=(",", ":")))


@cache
def _vocabulary() -> Any:
    import bpe_openai

    return bpe_openai.get_encoding("o200k_base")
