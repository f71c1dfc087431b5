"""Bulk encoding by tiktoken: the tokens of `tokenizers`, or `tokenizers` itself."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer

from trainer_runtime.core.config import DataConfig
from trainer_runtime.core.files.tiktoken_encodings import CL100K, GPT2, O200K
from trainer_runtime.train.data.bulk_encoding import (
    LEAST_BYTES,
    LLAMA3,
    ODD_TEXTS,
    QWEN2,
    FastEncode,
    fast_encode,
    in_bulk,
)
from trainer_runtime.train.data.tokenizers import open_tokenizer

END = "<|endoftext|>"
CORPUS = [
    Path(json.__file__).read_text(),
    *ODD_TEXTS,
    "Ünïcödé ñandú 中文字 한국어 don't DON'T 12345\n" * 20,
]
_ALPHABET = st.one_of(
    st.sampled_from("aZ ' sStTreVe\n\r\t 19½²ßé\u0301中한ſǅ/.!_-\u00a0\u2028\ufeff👩\u200d"),
    st.characters(exclude_categories=["Cs"]),
)


def trained(folder: Path, pattern: str | None = None, *, nfc: bool = False) -> Path:
    """A byte-level BPE that is split by `pattern`, or as GPT-2's."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pattern is not None:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        made.pre_tokenizer = pre_tokenizers.Sequence([split, last])
    if nfc:
        made.normalizer = normalizers.NFC()
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, special_tokens=[END], show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return folder


def fast_of(folder: Path) -> tuple[FastEncode | None, Any]:
    slow = open_tokenizer(str(folder)).encode
    return fast_encode(folder, slow), slow


def changed(folder: Path, change: Any) -> Path:
    file = folder / "tokenizer.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("pattern", [None, GPT2, LLAMA3, QWEN2, CL100K, O200K])
def test_the_tokens_are_those_of_tokenizers(
    tmp_path_factory: pytest.TempPathFactory, pattern: str | None
) -> None:
    fast, slow = fast_of(trained(tmp_path_factory.mktemp("bpe"), pattern))
    assert fast is not None

    @given(st.lists(st.text(_ALPHABET, max_size=40), max_size=4))
    @settings(max_examples=150, deadline=None)
    def alike(texts: list[str]) -> None:
        assert fast.is_equal_on(texts)

    alike()
    assert [list(tokens) for tokens in fast(CORPUS)] == [list(tokens) for tokens in slow(CORPUS)]


def test_texts_with_special_tokens_or_another_form_are_left_to_tokenizers(tmp_path: Path) -> None:
    fast, slow = fast_of(trained(tmp_path, QWEN2, nfc=True))
    assert fast is not None
    apart = unicodedata.normalize("NFD", "é ü한")
    texts = ["plain", f"one{END}two", apart, "'ſ", "plain again"]
    assert fast(texts) == slow(texts)
    assert 0 in fast(texts)[1]
    with pytest.raises(TypeError):  # as `tokenizers` does
        fast(["\ud800"])


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["model"].update(dropout=0.1),
        lambda document: document["model"]["merges"].reverse(),
        lambda document: document["model"]["vocab"].pop("Ġ"),
        lambda document: document["pre_tokenizer"].update(add_prefix_space=True),
        lambda document: document.update(pre_tokenizer={"type": "Whitespace"}),
        lambda document: document.update(normalizer={"type": "Lowercase"}),
    ],
)
def test_a_tokenizer_that_merges_or_splits_otherwise_is_left_to_tokenizers(
    tmp_path: Path, change: Any
) -> None:
    folder = trained(tmp_path)
    slow = open_tokenizer(str(folder)).encode
    assert fast_encode(folder, slow) is not None
    assert fast_encode(changed(folder, change), slow) is None


def test_a_token_that_no_pairs_make_keeps_whole_pieces_alike(tmp_path: Path) -> None:
    """As in converted encodings: with `ignore_merges` a piece that is a token stays one."""

    def unmade(document: Any) -> None:
        document["model"]["vocab"]["qzxjv"] = 5000
        document["model"]["ignore_merges"] = True

    fast, _ = fast_of(changed(trained(tmp_path), unmade))
    assert fast is not None
    assert fast(["qzxjv"]) == [[5000]]
    assert fast.is_equal_on(["qzxjv qzxjv", "qzxjvq", "aqzxjv"])


def test_a_batch_that_differs_ends_the_use_of_tiktoken(tmp_path: Path) -> None:
    folder = trained(tmp_path)
    slow = open_tokenizer(str(folder)).encode
    other = open_tokenizer(str(trained(tmp_path / "other", LLAMA3))).encode
    fast = fast_encode(folder, slow)
    assert fast is not None
    differing = replace(fast, slow=other)
    assert differing(["123456789"]) == other(["123456789"])
    assert not differing.is_used


def test_little_text_keeps_the_tokenizer_as_it_is(tmp_path: Path) -> None:
    folder = trained(tmp_path / "tokenizer")
    tokenizer, data = open_tokenizer(str(folder)), DataConfig(tokenizer=str(folder))
    little, much = tmp_path / "little.txt", tmp_path / "much.txt"
    little.write_text("a")
    with much.open("wb") as file:
        file.truncate(LEAST_BYTES)
    assert in_bulk(tokenizer, data, {"main": [str(little)]}) is tokenizer
    assert isinstance(in_bulk(tokenizer, data, {"main": [str(much)]}).encode, FastEncode)
