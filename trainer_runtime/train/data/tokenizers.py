"""Tokenizers for cutting shards: bytes, `tokenizer.json`, SentencePiece's `tokenizer.model`, or
WordPiece's `vocab.txt`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainer_runtime.core.files.tokenizer_folder import (
    BYTE,
    JSON_NAME,
    NONE,
    SENTENCEPIECE_NAME,
    UNKNOWN,
    WORDPIECE_NAME,
    read_tokenizer_folder,
    tokenizer_files,
    wordpiece_rules,
    wordpieces,
)
from trainer_runtime.core.frameworks import byte_tokenizer
from trainer_runtime.train.attempt.config import ConfigError, DataConfig

_NO_END = -1
_OF_BERT = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")


class Encode(Protocol):
    def __call__(self, texts: Sequence[str], /) -> Sequence[Sequence[int]]: ...


Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """`encode` adds nothing of its own to a text; `end_of_text` is what comes behind one.

    `decode` gives the text of tokens; bytes that are no UTF-8 show as U+FFFD. `end_of_text` is -1
    where no token ends a text.
    """

    encode: Encode
    decode: Decode
    vocab_size: int
    end_of_text: int


def tokenizer_of(data: DataConfig) -> Tokenizer:
    """The tokenizer of the data; of ready tokens without one, texts are their numbers.

    Raises:
        ConfigError: as `open_tokenizer`.
    """
    if data.tokenizer != NONE:
        return open_tokenizer(data.tokenizer)
    size = data.vocab_size or 0

    def encode(texts: Sequence[str]) -> Sequence[Sequence[int]]:
        try:
            token_ids = [[int(word) for word in text.split()] for text in texts]
        except ValueError:
            token_ids = [[-1]]
        if any(not 0 <= number < size for numbers in token_ids for number in numbers):
            raise ConfigError(f"the tokens have no tokenizer: give numbers below {size}")
        return token_ids

    return Tokenizer(encode, lambda tokens: " ".join(map(str, tokens)), size, _NO_END)


def open_tokenizer(name: str) -> Tokenizer:
    """`byte`, or the tokenizer of a folder.

    Raises:
        ConfigError: the folder holds none that can be used, or the environment can't read it.
    """
    if name == BYTE:
        return Tokenizer(_bytes, _of_bytes, byte_tokenizer.VOCABULARY, byte_tokenizer.END_OF_TEXT)
    tokenizer_folder = read_tokenizer_folder(name)
    if tokenizer_folder.problem is not None:
        raise ConfigError(f"the tokenizer in {name} can't be used: {tokenizer_folder.problem}")
    try:
        encode, decode = _opened(Path(name))
    except ImportError as error:
        raise ConfigError(
            f"the tokenizer in {name} takes the package {error.name}, which the environment "
            "lacks; add it by environment.requirements"
        ) from None
    except Exception as error:  # what `tokenizers` raises is an Exception and nothing more
        raise ConfigError(f"the tokenizer in {name} can't be used: {error}") from None
    return Tokenizer(encode, decode, tokenizer_folder.vocab_size, tokenizer_folder.end_of_text)


def files_of(data: DataConfig) -> dict[str, bytes]:
    """The content of the tokenizer's files by name; none where ready tokens came without one.

    Raises:
        OSError: one can't be read.
    """
    if data.tokenizer == NONE:
        return {}
    if data.tokenizer != BYTE:
        folder = Path(data.tokenizer)
        return {name: (folder / name).read_bytes() for name in tokenizer_files(data.tokenizer)}
    if _is_unknown(data):
        return {}
    return {Path(name).name: text.encode() for name, text in byte_tokenizer.files().items()}


def end_of_text(data: DataConfig) -> int | None:
    """The token that ends a text; None where it isn't known."""
    if data.tokenizer == NONE:
        return None
    if data.tokenizer == BYTE:
        return None if _is_unknown(data) else byte_tokenizer.END_OF_TEXT
    tokenizer_folder = read_tokenizer_folder(data.tokenizer)
    return tokenizer_folder.end_of_text if tokenizer_folder.problem is None else None


def _is_unknown(data: DataConfig) -> bool:
    """Whether the tokens are given, by a tokenizer that nobody named."""
    return any(source.format == "tokens" for source in data.sources)


def _of_bytes(tokens: Sequence[int]) -> str:
    return bytes(token for token in tokens if token < byte_tokenizer.END_OF_TEXT).decode(
        errors="replace"
    )


def _bytes(texts: Sequence[str]) -> Sequence[Sequence[int]]:
    return [text.encode() for text in texts]


def _opened(folder: Path) -> tuple[Encode, Decode]:
    if (folder / JSON_NAME).is_file():
        import tokenizers

        return _of_library(tokenizers.Tokenizer.from_file(str(folder / JSON_NAME)))
    if not (folder / SENTENCEPIECE_NAME).is_file():
        return _of_library(_wordpiece(folder))
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / SENTENCEPIECE_NAME))
    return (
        lambda texts: pieces.encode(list(texts)),
        lambda tokens: str(pieces.decode(list(tokens))),
    )


def _of_library(fast: Any) -> tuple[Encode, Decode]:
    """`fast`: a `tokenizers.Tokenizer`."""
    fast.no_truncation()
    fast.no_padding()
    encode_batch: Any = getattr(fast, "encode_batch_fast", fast.encode_batch)

    def encode(texts: Sequence[str]) -> Sequence[Sequence[int]]:
        return [encoding.ids for encoding in encode_batch(list(texts), add_special_tokens=False)]

    return encode, lambda tokens: str(fast.decode(list(tokens), skip_special_tokens=False))


def _wordpiece(folder: Path) -> Any:
    """BERT's tokenizer, as a `tokenizers.Tokenizer`."""
    from tokenizers import Tokenizer as FastTokenizer
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    vocabulary = wordpieces((folder / WORDPIECE_NAME).read_bytes())
    fast = FastTokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN))
    fast.add_special_tokens([token for token in _OF_BERT if token in vocabulary])
    fast.normalizer = normalizers.BertNormalizer(**wordpiece_rules(folder))
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.decoder = decoders.WordPiece()
    return fast
