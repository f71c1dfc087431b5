"""What a text costs a model, by a real vocabulary: o200k, which lies in the package's wheel."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

# Answers quote the program's path and the home's; a checkout may lie anywhere.
_PROGRAM, _FOLDER = "/home/ada/trainmaster/.venv/bin/python", "/tmp/trainings"


def tokens(text: str) -> int:
    """The number of tokens; the name of a special token counts as text."""
    return len(_vocabulary().encode(text, disallowed_special=()))


def tokens_of(answer: object, folder: Path | None = None) -> int:
    """Of an answer, as its client gets it: compact JSON. It is counted as of a program and a
    `folder` with paths of a usual length, whichever they have."""
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    text = text.replace(sys.executable, _PROGRAM)
    return tokens(text if folder is None else text.replace(str(folder), _FOLDER))


@cache
def _vocabulary() -> Any:
    import bpe_openai

    return bpe_openai.get_encoding("o200k_base")
