"""The data card that a preparation leaves in the run's folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.files.corpus import Source, fingerprint, list_files
from trainer_runtime.core.inputs.bad_rows import COUNTS
from trainer_runtime.core.inputs.data_card import CardSource, DataCard, render_card
from trainer_runtime.host.prepare.data_card import data_card
from trainer_runtime.host.prepare.preparation import main

_COMMIT = "0123456789abcdef0123456789abcdef01234567"


def config_of(folder: Path, **changes: Any) -> dict[str, Any]:
    texts = folder / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("Some text. " * 40)
    (texts / "b.txt").write_text("Another one. " * 40)
    held_out = folder / "val.txt"
    held_out.write_text("Held out. " * 40)
    sources = [
        Source("main", str(texts), list_files(texts)),
        Source("own", str(held_out), list_files(held_out), held_out=True),
    ]
    return {
        "run_id": "small-1",
        "name": "small",
        "data": {
            "sources": [{"name": "main", "path": str(texts), "license": "cc-by-4.0"}],
            "validation": [{"name": "own", "path": str(held_out)}],
            "tokenizer": "byte",
            "seq_len": 16,
            "fingerprint": fingerprint(sources, "byte", 16),
            "cache_dir": str(folder / "cache"),
        },
        **changes,
    }


def test_a_prepared_run_has_a_card_of_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.chdir(run)
    (run / "config.json").write_text(json.dumps(config_of(tmp_path)))
    assert main("config.json") == 0
    card = json.loads((run / "data_card.json").read_text())
    main_source, own = card["sources"]
    digests = [
        [name, hashlib.sha256((tmp_path / "texts" / name).read_bytes()).hexdigest()]
        for name in ("a.txt", "b.txt")
    ]
    assert main_source == {
        "name": "main",
        "path": str(tmp_path / "texts"),
        "format": "text",
        "is_validation": False,
        "share": 1.0,
        "license": "cc-by-4.0",
        "files": 2,
        "size_bytes": 960,
        "sha256": hashlib.sha256(json.dumps(digests).encode()).hexdigest(),
        "digest_of": "content",
        "documents": 2,
        "tokens": 962,
    }
    assert (own["is_validation"], own["held_out_tokens"]) == (True, 401)
    page = (run / "data_card.md").read_text()
    for line in (
        "# Data of small",
        "- Tokenizer: byte",
        "- Validation: files of its own: own",
        "- Licence: cc-by-4.0",
        "- Tokens to train on: 962",
        "- Use: validation only",
    ):
        assert f"{line}\n" in page


def test_a_card_names_hub_and_client_as_the_spec_did(tmp_path: Path) -> None:
    from trainer_runtime.core.config import RunConfig

    config = config_of(tmp_path)
    folder = config["data"]["sources"][0]["path"]
    config["data"]["sources"][0]["revision"] = _COMMIT
    config["data"]["upload"] = {"sources": {"own": "/home/me/val.txt"}}
    item = {"what": "data set", "folder": folder, "from": None, "hub": "some/rows"}
    config["inputs"] = [{**item, "revision": _COMMIT, "files": [], "repo_type": "dataset"}]
    main_source, own = data_card(RunConfig.parse(config)).sources
    assert (main_source.path, main_source.revision) == ("some/rows", _COMMIT)
    assert (own.path, own.documents) == ("/home/me/val.txt", None)


def test_rows_are_counted_as_the_preparation_noted_them(tmp_path: Path) -> None:
    from trainer_runtime.core.config import RunConfig

    config = config_of(tmp_path, framework="trl", method="sft")
    config["data"]["form"] = "dataset"
    noted = tmp_path / "cache/data" / config["data"]["fingerprint"] / "left_out/sft"
    noted.mkdir(parents=True)
    counted = {"rows": 204, "bad_rows": 4, "first_bad": "a.jsonl, line 10"}
    (noted / COUNTS).write_text(json.dumps({"main": counted}))
    source = data_card(RunConfig.parse(config)).sources[0]
    assert (source.rows, source.bad_rows, source.first_bad) == (204, 4, "a.jsonl, line 10")


def test_a_card_is_the_same_after_it_was_written_and_read() -> None:
    source = CardSource("a", "hf://x/y", "jsonl", share=0.25, bad_rows=3, first_bad="line 2")
    mixes = {"late": {"a": 0.25, "b": 0.75}}
    card = DataCard("r-1", "r", "sft", "0" * 16, "5%", "byte", sources=(source,), mixes=mixes)
    again = DataCard.of(Fields(json.loads(json.dumps(card.to_dict())), "card"))
    assert again == card
    page = render_card(again)
    assert "- Mix in the phase late: a 25.0 %, b 75.0 %" in page
    assert "- Bad rows skipped: 3; the first: line 2" in page
