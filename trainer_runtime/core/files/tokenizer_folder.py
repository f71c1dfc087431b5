"""Reads a tokenizer's folder: its vocabulary, its end-of-text token and its digest.

Client and host run this same code. It imports no tokenizer library: `tokenizer.json` is JSON, of
SentencePiece's `tokenizer.model` only the pieces' names are read, and WordPiece's `vocab.txt` has a
token on each line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer_runtime.core.decoding import JsonRecord, decode_fields
from trainer_runtime.core.files.regular import read_regular
from trainer_runtime.core.files.special_tokens import SpecialTokens, special_tokens

BYTE = "byte"
NONE = "none"  # of ready tokens
JSON_NAME, SENTENCEPIECE_NAME, WORDPIECE_NAME, SETTINGS_NAME = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.txt",
    "tokenizer_config.json",
)
CHAT_TEMPLATE_NAME = "chat_template.jinja"
# Where neither the settings nor the model's config name the token that ends a text.
_CUSTOMARY = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<|im_end|>", "[SEP]")
# Other classes have a `vocab.txt`, too, which they cut by otherwise.
_WORDPIECE_CLASSES = re.compile(r"(Bert|DistilBert|Electra|MobileBert)Tokenizer(Fast)?")
UNKNOWN = "[UNK]"
ADDED_NAME = "special_tokens_map.json"
_NAMED_IN = ((SETTINGS_NAME, "eos_token"), (ADDED_NAME, "eos_token"))
_NUMBERED_IN = (("generation_config.json", "eos_token_id"), ("config.json", "eos_token_id"))
# Field numbers of sentencepiece_model.proto: ModelProto.pieces, SentencePiece.piece.
_PIECES, _PIECE = 1, 1
# The largest vocabularies have some 300,000 tokens, whose JSON takes 35 MB.
LARGEST_TOKENIZER_BYTES = 128 << 20
_MOST_PIECES = 2_000_000
_LONGEST_VARINT_BYTES = 10
_FILES = re.compile(r"(tokenizer|vocab|merges|special_tokens|added_tokens|chat_template)")


@dataclass(frozen=True, slots=True)
class TokenizerFolder(JsonRecord):
    """`vocab_size`: the highest token's number and one; `end_of_text`: the number of the token that
    ends a text; `digest`: sixteen hexadecimal digits of what decides how texts are cut. `packages`:
    see `packages_to_read`. `chat_template`: whether it has one. `special`: what objectives of
    pretraining take. `problem` says why the folder holds no tokenizer that can be used.
    """

    path: str
    vocab_size: int = 0
    end_of_text: int = 0
    digest: str = ""
    problem: str | None = None
    packages: tuple[str, ...] = ()
    chat_template: bool | None = None
    special: SpecialTokens = field(default_factory=SpecialTokens)


def read_tokenizer_folder(path: str) -> TokenizerFolder:
    """The tokenizer of a folder, or why it can't be used; never raises."""
    folder = Path(path)
    try:
        tokens, content = _tokens(folder)
        end_of_text = _end_of_text(folder, tokens)
        settings = _settings(folder / SETTINGS_NAME), _settings(folder / ADDED_NAME)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return TokenizerFolder(path, problem=_describe(error))
    if end_of_text is None:
        names = "eos_token in tokenizer_config.json"
        return TokenizerFolder(path, problem=f"nothing names the token that ends a text ({names})")
    digest = hashlib.sha256(content + b"\0%d" % end_of_text).hexdigest()[:16]
    packages = packages_to_read(set(tokenizer_files(path)))
    return TokenizerFolder(
        path,
        max(tokens.values()) + 1,
        end_of_text,
        digest,
        packages=packages,
        chat_template=_has_chat_template(folder),
        special=special_tokens(tokens, *settings),
    )


def tokenizer_files(path: str) -> list[str]:
    """The names of the files of a folder that belong to a tokenizer; none where there is none.

    Raises:
        OSError: the folder can't be read.
    """
    folder = Path(path)
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(filter(is_of_tokenizer, names))


def is_of_tokenizer(name: str) -> bool:
    """Whether a file of a model's folder belongs to its tokenizer."""
    return _FILES.match(name) is not None


def holds_tokenizer(names: set[str]) -> bool:
    """Whether a folder with files of these names holds a tokenizer that can be used. A `vocab.txt`
    proves nothing: models of other kinds have one, too."""
    return JSON_NAME in names or SENTENCEPIECE_NAME in names


def packages_to_read(names: set[str]) -> tuple[str, ...]:
    """The packages beside transformers with which it reads the tokenizer of a folder with files of
    these names: SentencePiece's own file is a protocol buffer."""
    if JSON_NAME in names or SENTENCEPIECE_NAME not in names:
        return ()
    return ("sentencepiece", "protobuf")


def _tokens(folder: Path) -> tuple[dict[str, int], bytes]:
    """Every token's number by its text, and the bytes that define the tokenizer.

    Raises:
        ValueError: the tokenizer is missing or can't be read.
    """
    for name, read in (
        (JSON_NAME, _of_json),
        (SENTENCEPIECE_NAME, _of_sentencepiece),
        (WORDPIECE_NAME, wordpieces),
    ):
        file = folder / name
        if file.is_file():
            if file.stat().st_size > LARGEST_TOKENIZER_BYTES:
                raise ValueError(f"{name} is larger than any tokenizer's")
            content = read_regular(file, LARGEST_TOKENIZER_BYTES)
            if len(content) > LARGEST_TOKENIZER_BYTES:  # it has grown
                raise ValueError(f"{name} is larger than any tokenizer's")
            try:
                tokens = read(content)
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                raise ValueError(f"{name} can't be read: {error}") from None
            if not tokens:
                raise ValueError(f"{name} has no tokens")
            if name == WORDPIECE_NAME:
                rules = wordpiece_rules(folder)
                content += json.dumps(rules, sort_keys=True).encode()
            return tokens, content
    if not folder.is_dir():
        raise ValueError(
            "the folder does not exist" if not folder.exists() else "it is not a folder"
        )
    raise ValueError("it holds neither tokenizer.json, tokenizer.model nor vocab.txt")


def wordpiece_rules(folder: Path) -> dict[str, bool | None]:
    """How a folder's WordPiece tokenizer normalizes texts, as arguments of `BertNormalizer`.

    Raises:
        OSError, ValueError: its settings can't be read, or are of a tokenizer of another kind.
    """
    settings = _settings(folder / SETTINGS_NAME)
    named = settings.get("tokenizer_class")
    if not isinstance(named, str) or not _WORDPIECE_CLASSES.fullmatch(named):
        raise ValueError(
            f"vocab.txt is read as WordPiece's where {SETTINGS_NAME} has a tokenizer_class of BERT "
            f"(BertTokenizer), and it has {named!r}"
        )
    accents = settings.get("strip_accents")
    return {
        "lowercase": settings.get("do_lower_case") is not False,
        "strip_accents": accents if isinstance(accents, bool) else None,
        "handle_chinese_chars": settings.get("tokenize_chinese_chars") is not False,
    }


def wordpieces(content: bytes) -> dict[str, int]:
    """The tokens of a `vocab.txt` with their numbers.

    Raises:
        ValueError: it is not UTF-8, or has no unknown token.
    """
    lines = content.decode().removesuffix("\n").split("\n")
    tokens = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    if UNKNOWN not in tokens:
        raise ValueError(f"it has no {UNKNOWN}")
    return tokens


def _of_json(content: bytes) -> dict[str, int]:
    document = decode_fields(content, JSON_NAME, max_bytes=LARGEST_TOKENIZER_BYTES)
    listed = document.section("model").values["vocab"]
    if isinstance(listed, list):  # Unigram: pairs of a token and its score
        tokens = {str(pair[0]): number for number, pair in enumerate(listed)}
    else:
        vocabulary = document.section("model").section("vocab").values
        tokens = {text: number for text, number in vocabulary.items() if type(number) is int}
    added = {
        token.text("content"): token.integer("id") for token in document.sections("added_tokens")
    }
    return {**tokens, **added}


def _of_sentencepiece(content: bytes) -> dict[str, int]:
    pieces = (value for number, value in _fields(content) if number == _PIECES)
    names = (dict(_fields(piece)).get(_PIECE, b"").decode(errors="replace") for piece in pieces)
    return {name: number for number, name in enumerate(names)}


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a protocol buffer; others are read over.

    Raises:
        ValueError, IndexError: it is none, or has more fields than a vocabulary.
    """
    at = count = 0
    while at < len(message):
        count += 1
        if count > _MOST_PIECES:
            raise ValueError("it has more pieces than any tokenizer")
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 2:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise ValueError("it is cut off")
            yield number, message[at : at + length]
            at += length
        elif kind == 0:
            _, at = _varint(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("it is not a SentencePiece model")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if shift > 7 * _LONGEST_VARINT_BYTES:
            raise ValueError("it holds a number beyond 64 bits")
        if byte < 0x80:
            return value, at


def _end_of_text(folder: Path, tokens: Mapping[str, int]) -> int | None:
    for name, key in _NAMED_IN:
        named = _settings(folder / name).get(key)
        text = named.get("content") if isinstance(named, dict) else named
        if isinstance(text, str) and text in tokens:
            return tokens[text]
    for name, key in _NUMBERED_IN:
        number = _settings(folder / name).get(key)
        number = number[0] if isinstance(number, list) and number else number
        if isinstance(number, int) and 0 <= number <= max(tokens.values()):
            return number
    return next((tokens[text] for text in _CUSTOMARY if text in tokens), None)


def _has_chat_template(folder: Path) -> bool:
    there = (folder / CHAT_TEMPLATE_NAME).is_file()
    return there or bool(_settings(folder / SETTINGS_NAME).get("chat_template"))


def _settings(file: Path) -> Mapping[str, object]:
    try:
        data = read_regular(file, LARGEST_TOKENIZER_BYTES)
        return decode_fields(data, file.name, max_bytes=LARGEST_TOKENIZER_BYTES).values
    except FileNotFoundError:
        return {}


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"it can't be read ({error.strerror})"
    return str(error)
