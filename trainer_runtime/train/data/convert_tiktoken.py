"""Makes a tokenizer's folder of an encoding of tiktoken.

`python -m trainer_runtime.train.data.convert_tiktoken REQUEST`, started by `host.prepare.inputs`.
The ranks are read from tiktoken's cache, or from the package `bpe-openai` where it ships them;
nothing is fetched. `tokenizers` then gives the tokens of tiktoken: the encoding's pairs are merged
in the order of their ranks, and a piece of text that is a token stays whole.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer_runtime.core.config import InputConfig
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.files.tiktoken_encodings import (
    ENCODINGS,
    RankFile,
    TiktokenEncoding,
)
from trainer_runtime.core.frameworks import byte_tokenizer
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.data.train_tokenizer import save_tokenizer

# In tiktoken's order: the user's, else its own.
_CACHES = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")
_USUAL_CACHE = "data-gym-cache"
_SHIPPED = "bpe_openai"
_LARGEST_BYTES = 32 << 20
Ranks = Mapping[bytes, int]


def main(request_path: str) -> int:
    """Convert what a request names; the exit code."""
    request = InputConfig.of(
        decode_fields(Path(request_path).read_bytes(), "request", max_bytes=MAX_DOCUMENT_BYTES)
    )
    try:
        convert(str(request.tiktoken), Path(request.folder))
    except ConfigError as error:
        print(error, flush=True)
        return ExitCode.UNUSABLE
    return 0


def convert(name: str, folder: Path) -> None:
    """Write the tokenizer's files into `folder`.

    Raises:
        ConfigError: it is not an encoding, or neither cache nor package has it.
    """
    encoding = ENCODINGS.get(name)
    if encoding is None:
        names = ", ".join(ENCODINGS)
        raise ConfigError(f"data.tokenizer: tiktoken has no {name}, but {names}")
    document = json.dumps(_document(encoding, _ranks(name, encoding)), ensure_ascii=False)
    save_tokenizer(document, folder, byte_tokenizer.settings())


def _ranks(name: str, encoding: TiktokenEncoding) -> Ranks:
    """Raises: ConfigError: no place has them."""
    places = [Path(os.environ[variable]) for variable in _CACHES if os.environ.get(variable)]
    places = places[:1] or [Path(tempfile.gettempdir(), _USUAL_CACHE)]
    ranks = _cached(places[0], encoding.file)
    if ranks is not None:
        return _of_lines(ranks)
    merges = None if encoding.merges is None else _cached(places[0], encoding.merges)
    if merges is not None:
        return ranks_of_merges(merges)
    shipped = shipped_ranks(name, encoding) if encoding.is_shipped else None
    if shipped is not None:
        return _of_lines(shipped)
    package = f", and the environment lacks {_SHIPPED}" if encoding.is_shipped else ""
    raise ConfigError(
        f"data.tokenizer: this host has no ranks of tiktoken:{name} in {places[0]}{package}; "
        f"copy them there from a machine on which `tiktoken.get_encoding('{name}')` has run (env: "
        "{TIKTOKEN_CACHE_DIR: FOLDER} names another folder), or name a tokenizer of the hub"
    )


def _cached(folder: Path, wanted: RankFile) -> bytes | None:
    """A file of tiktoken's cache; a damaged one counts as missing."""
    with suppress(OSError), cached_path(folder, wanted).open("rb") as file:
        return _checked(file.read(_LARGEST_BYTES), wanted)
    return None


def cached_path(folder: Path, wanted: RankFile) -> Path:
    """Where tiktoken keeps a file in its cache."""
    return folder / hashlib.sha1(wanted.address.encode()).hexdigest()


def shipped_ranks(name: str, encoding: TiktokenEncoding) -> bytes | None:
    """The file of ranks that the package has; None without it."""
    spec = importlib.util.find_spec(_SHIPPED)
    for folder in (spec and spec.submodule_search_locations) or ():
        with suppress(OSError), gzip.open(Path(folder, "data", f"{name}.tiktoken.gz")) as file:
            return _checked(file.read(_LARGEST_BYTES), encoding.file)
    return None


def _checked(content: bytes, wanted: RankFile) -> bytes | None:
    return content if hashlib.sha256(content).hexdigest() == wanted.sha256 else None


def _of_lines(content: bytes) -> Ranks:
    pairs = (line.split() for line in content.splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def ranks_of_merges(content: bytes) -> Ranks:
    """Of a `vocab.bpe`: bytes that print come first, then the others, then the pairs."""
    letters = byte_tokenizer.letters()
    bytes_of = {letter: byte for byte, letter in enumerate(letters)}
    ordered = sorted(range(256), key=lambda byte: (letters[byte] != chr(byte), byte))
    ranks = {bytes([byte]): rank for rank, byte in enumerate(ordered)}
    for line in content.decode().split("\n")[1:-1]:
        token = bytes(bytes_of[letter] for letter in line.replace(" ", ""))
        ranks[token] = len(ranks)
    return ranks


def _document(encoding: TiktokenEncoding, ranks: Ranks) -> dict[str, Any]:
    """What `tokenizer.json` says."""
    letters = byte_tokenizer.letters()
    names = {token: "".join(letters[byte] for byte in token) for token in ranks}
    document = byte_tokenizer.document()
    split = {
        "type": "Split",
        "pattern": {"Regex": encoding.pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    added = document["added_tokens"][0]
    return {
        **document,
        "added_tokens": [
            {**added, "id": number, "content": token} for token, number in encoding.special.items()
        ],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [split, document["pre_tokenizer"]],
        },
        "model": {
            **document["model"],
            "ignore_merges": True,
            "vocab": {names[token]: rank for token, rank in ranks.items()} | encoding.special,
            "merges": [[names[left], names[right]] for left, right in _merges(ranks)],
        },
    }


def _merges(ranks: Ranks) -> Iterator[tuple[bytes, bytes]]:
    """By rank, the two tokens that make each one. Some have none: only whole pieces of text are
    ever such a token."""
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            parts = _parts(token, rank, ranks)
            if len(parts) == 2:
                yield parts[0], parts[1]


def _parts(token: bytes, rank: int, ranks: Ranks) -> list[bytes]:
    """What a token is before the merge of its own rank (Sennrich et al. 2016, algorithm 1)."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        pairs = [(ranks.get(parts[at] + parts[at + 1], rank), at) for at in range(len(parts) - 1)]
        least, at = min(pairs)
        if least >= rank:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
