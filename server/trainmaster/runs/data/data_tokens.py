"""How many tokens a tokenizer's folder makes of a byte of text."""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.core.files.tokenizer_folder import (
    JSON_NAME,
    SENTENCEPIECE_NAME,
    holds_tokenizer,
    read_tokenizer_folder,
    tokenizer_files,
)

_MOST_CHARACTERS = 200_000


def tokens_per_byte(folder: Path, text: str) -> tuple[float | None, str | None]:
    """Tokens for each byte of a sample of text; or None, and why they can't be counted."""
    text = text[:_MOST_CHARACTERS].encode(errors="replace").decode()
    described = read_tokenizer_folder(str(folder))
    if described.problem is not None or not text:
        return None, described.problem
    if not holds_tokenizer(set(tokenizer_files(str(folder)))):
        return None, f"{folder.name} holds a vocab.txt, which only the host reads"
    try:
        count = _count(folder, text)
    except ImportError as error:
        return None, f"{error.name} is not installed on this machine"
    return count / len(text.encode()), None


def _count(folder: Path, text: str) -> int:
    """Raises: ImportError: the tokenizer's package is not installed."""
    if (folder / JSON_NAME).is_file():
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / JSON_NAME))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return len(tokenizer.encode(text, add_special_tokens=False).ids)
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / SENTENCEPIECE_NAME))
    return len(pieces.encode(text))
