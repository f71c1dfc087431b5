"""Tokenizers for cutting shards: bytes, `tokenizer.json`, or SentencePiece's `tokenizer.model`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from trainer_runtime.core.files.tokenizer_folder import (
    BYTE,
    JSON_NAME,
    SENTENCEPIECE_NAME,
    read_tokenizer_folder,
)
from trainer_runtime.core.inputs import byte_tokenizer
from trainer_runtime.core.records import dataclass
from trainer_runtime.train.attempt.config import ConfigError


class Encode(Protocol):
    def __call__(self, texts: Sequence[str], /) -> Sequence[Sequence[int]]: ...


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """`encode` adds nothing of its own to a text; `end_of_text` is what comes behind one."""

    encode: Encode
    vocab_size: int
    end_of_text: int


def open_tokenizer(name: str) -> Tokenizer:
    """`byte`, or the tokenizer of a folder.

    Raises:
        ConfigError: the folder holds none that can be used, or the environment can't read it.
    """
    if name == BYTE:
        return Tokenizer(_bytes, byte_tokenizer.VOCABULARY, byte_tokenizer.END_OF_TEXT)
    found = read_tokenizer_folder(name)
    if found.problem is not None:
        raise ConfigError(f"the tokenizer in {name} can't be used: {found.problem}")
    try:
        encode = _opened(Path(name))
    except ImportError as error:
        raise ConfigError(
            f"the tokenizer in {name} takes the package {error.name}, which the environment "
            "lacks; add it by environment.requirements"
        ) from None
    except Exception as error:  # what `tokenizers` raises is an Exception and nothing more
        raise ConfigError(f"the tokenizer in {name} can't be used: {error}") from None
    return Tokenizer(encode, found.vocab_size, found.end_of_text)


def _bytes(texts: Sequence[str]) -> Sequence[Sequence[int]]:
    return [text.encode() for text in texts]


def _opened(folder: Path) -> Encode:
    if (folder / JSON_NAME).is_file():
        from tokenizers import Tokenizer as FastTokenizer

        fast = FastTokenizer.from_file(str(folder / JSON_NAME))
        fast.no_truncation()
        fast.no_padding()
        encode_batch: Any = getattr(fast, "encode_batch_fast", fast.encode_batch)
        return lambda texts: [
            encoded.ids for encoded in encode_batch(list(texts), add_special_tokens=False)
        ]
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / SENTENCEPIECE_NAME))
    return lambda texts: pieces.encode(list(texts))
