"""Tokenizers that are not there when a run is planned: of a declared size, or refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.plan.planned_spec import planned, refused

from trainmaster.runs.export.render_spec import portable
from trainmaster.sync.workspace import Workspace


def spec_of(corpus: Path, tokenizer: Any, **changes: Any) -> str:
    data = {"sources": [{"name": "main", "path": str(corpus)}], "seq_len": 32}
    spec = {
        "name": "small",
        "framework": "nanogpt",
        "model": {"n_layer": 1, "n_head": 2, "d_model": 32},
        "data": {**data, "tokenizer": tokenizer, **changes.pop("data", {})},
        "batch": {"tokens": 256},
        "steps": 4,
        "compute": {"gpus": 0},
        "host": "debug",
        **changes,
    }
    return json.dumps(spec)


@pytest.mark.parametrize(
    ("tokenizer", "kind", "size", "rows"),
    [
        ("char", "char", 256, 256),
        ({"train": "char"}, "char", 256, 256),
        ({"train": "bpe", "size": 1000}, "bpe", 1000, 1024),
    ],
)
def test_the_declared_size_is_the_models_and_the_folder_lies_beside_the_shards(
    workspace: Workspace, corpus: Path, tokenizer: Any, kind: str, size: int, rows: int
) -> None:
    config = planned(workspace, spec_of(corpus, tokenizer)).config
    data = config["data"]
    assert data["tokenizer_training"] == {"kind": kind, "size": size}
    entry = f"{data['cache_dir']}/data/{data['fingerprint']}"
    assert data["tokenizer"] == f"{entry}/tokenizer"
    assert config["model"]["vocab_size"] == rows
    assert "inputs" not in config
    assert any("transformers" in line for line in config["environment"]["packages"])
    assert any(line.startswith("tiktoken") for line in config["environment"]["optional"])


def test_kind_and_size_are_in_the_fingerprint(workspace: Workspace, corpus: Path) -> None:
    tokenizers: list[Any] = ["byte", "char", *({"train": "bpe", "size": n} for n in (300, 301))]
    tokenizers += [{"train": "unigram", "size": 600}, {"train": "wordpiece", "size": 600}]
    configs = [planned(workspace, spec_of(corpus, one)).config for one in tokenizers]
    assert len({config["data"]["fingerprint"] for config in configs}) == len(tokenizers)


def test_an_exported_run_names_the_tokenizer_in_its_own_cache(
    workspace: Workspace, corpus: Path
) -> None:
    made = planned(workspace, spec_of(corpus, "char"))
    data = portable(made, workspace.home).config["data"]
    assert data["tokenizer"] == f"{data['cache_dir']}/data/{data['fingerprint']}/tokenizer"
    assert not os.path.isabs(data["tokenizer"])


@pytest.mark.parametrize(
    ("tokenizer", "changes", "field"),
    [
        ({"train": "bpe", "size": 256}, {}, "data.tokenizer.size"),
        ({"train": "unigram", "size": 300}, {}, "data.tokenizer.size"),
        ({"train": "char", "size": 2}, {}, "data.tokenizer.size"),
        ({"train": "bpe"}, {}, "data.tokenizer.size"),
        ({"train": "words", "size": 1000}, {}, "data.tokenizer.train"),
        ({"size": 1000}, {}, "data.tokenizer.train"),
        ("bpe", {}, "data.tokenizer"),
        ("tiktoken:gpt5", {}, "data.tokenizer"),
        ("char", {"data": {"prepare": "here"}}, "data.prepare"),
        ("char", {"framework": "hf", "data": {"prepare": "stream"}}, "data.prepare"),
        ("char", {"framework": "litgpt", "method": "sft"}, "data.tokenizer"),
        ("char", {"framework": "hf", "model": {"hub": "a/b"}}, "data.tokenizer"),
    ],
)
def test_what_can_not_be_trained_is_refused_by_its_field(
    workspace: Workspace, corpus: Path, tokenizer: Any, changes: Any, field: str
) -> None:
    assert refused(workspace, spec_of(corpus, tokenizer, **changes)).field == field


def test_ready_tokens_were_cut_by_another_tokenizer(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(bytes(600))
    sources = {"sources": [{"path": str(tmp_path / "train.bin"), "format": "tokens"}]}
    error = refused(workspace, spec_of(tmp_path, "char", data=sources))
    assert error.field == "data.tokenizer" and "cut by another one" in error.message


def test_an_encoding_of_tiktoken_is_an_input_that_the_host_converts(
    workspace: Workspace, corpus: Path
) -> None:
    config = planned(workspace, spec_of(corpus, "tiktoken:o200k_base", framework="hf")).config
    (item,) = config["inputs"]
    assert (item["what"], item["tiktoken"], item["hub"], item["from"]) == (
        "tokenizer",
        "o200k_base",
        None,
        None,
    )
    assert item["folder"] == config["data"]["tokenizer"]
    assert config["model"]["vocab_size"] == 200_064
    assert any(line.startswith("bpe-openai") for line in config["environment"]["packages"])
    without = planned(workspace, spec_of(corpus, "tiktoken:gpt2")).config
    assert not any(line.startswith("bpe-") for line in without["environment"]["packages"])
