"""Encodings of tiktoken as tokenizers' folders: the tokens of tiktoken itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken_ext.openai_public
from support.session.tiers import at_length
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.tiktoken_encodings import ENCODINGS
from trainer_runtime.core.files.tokenizer_folder import read_tokenizer_folder
from trainer_runtime.host.environment.training_python import InputUnusableError, TrainingPython
from trainer_runtime.host.prepare.inputs import settle_inputs
from trainer_runtime.train.data import convert_tiktoken
from trainer_runtime.train.data.bulk_encoding import ODD_TEXTS, fast_encode
from trainer_runtime.train.data.tokenizers import open_tokenizer

TEXTS = [*ODD_TEXTS, Path(convert_tiktoken.__file__).read_text(), "a\n  ", "x \n \n  y\r\n\r\n   "]


def config_of(tmp_path: Path, name: str) -> RunConfig:
    item = {
        "what": "tokenizer",
        "folder": str(tmp_path / "cache" / "models" / f"tiktoken-{name}"),
        "from": None,
        "hub": None,
        "revision": None,
        "files": [],
        "tiktoken": name,
    }
    return RunConfig.parse({"inputs": [item]})


def tiktokens(name: str, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Any:
    """tiktoken's own encoding, which reads its ranks from a cache."""
    encoding = ENCODINGS[name]
    shipped = convert_tiktoken.shipped_ranks(name, encoding)
    assert shipped is not None
    cache.mkdir()
    convert_tiktoken.cached_path(cache, encoding.file).write_bytes(shipped)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    return tiktoken.Encoding(**tiktoken_ext.openai_public.ENCODING_CONSTRUCTORS[name]())


@pytest.mark.parametrize("name", ["cl100k_base", *at_length("o200k_base")])
def test_a_converted_encoding_gives_the_tokens_of_tiktoken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    printed: list[str] = []
    config = config_of(tmp_path, name)
    settle_inputs(config, printed.append, TrainingPython(sys.executable))
    settle_inputs(config, printed.append, TrainingPython(sys.executable))
    assert printed.count(f"data: converting tiktoken's {name}") == 1
    folder = config.inputs[0].folder
    theirs = tiktokens(name, monkeypatch, tmp_path / "ranks")
    described, tokenizer = read_tokenizer_folder(folder), open_tokenizer(folder)
    assert described.problem is None
    assert described.vocab_size == theirs.n_vocab == ENCODINGS[name].vocab_size
    assert described.end_of_text == theirs.eot_token
    assert [list(tokens) for tokens in tokenizer.encode(TEXTS)] == [
        theirs.encode_ordinary(text) for text in TEXTS
    ]
    special = "<|endofprompt|>a<|endoftext|>"
    assert tokenizer.encode([special])[0] == theirs.encode(special, allowed_special="all")
    assert tokenizer.decode(theirs.encode_ordinary(TEXTS[5])) == TEXTS[5]
    assert fast_encode(Path(folder), tokenizer.encode) is not None


@pytest.mark.parametrize("name", ["gpt2", "r50k_base", "p50k_base"])
def test_an_encoding_that_the_host_has_not_is_refused_with_where_it_was_searched(
    tmp_path: Path, name: str
) -> None:
    cache = tmp_path / "ranks"
    cache.mkdir()
    convert_tiktoken.cached_path(cache, ENCODINGS[name].file).write_bytes(b"IQ== 0\n")  # damaged
    python = TrainingPython(sys.executable, {**os.environ, "DATA_GYM_CACHE_DIR": str(cache)})
    with pytest.raises(InputUnusableError, match=f"no ranks of tiktoken:{name} in {cache}"):
        settle_inputs(config_of(tmp_path, name), print, python)


def test_pairs_give_the_ranks_that_tiktoken_makes_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    merges = tmp_path / "vocab.bpe"
    merges.write_text("#version: 0.2\nĠ t\nĠt h\nÃ ¤\n")
    ranks = convert_tiktoken.ranks_of_merges(merges.read_bytes())
    assert ranks[b"!"] == 0 and ranks[b"\0"] == 188 and ranks["ä".encode()] == 258
    letters = convert_tiktoken.byte_tokenizer.letters()
    names = {"".join(letters[byte] for byte in token): rank for token, rank in ranks.items()}
    encoder = tmp_path / "encoder.json"
    encoder.write_text(convert_tiktoken.json.dumps(names))
    assert data_gym_to_mergeable_bpe_ranks(str(merges), str(encoder)) == ranks
