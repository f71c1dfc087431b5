"""Filters of texts, by datatrove itself."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.config import FilterConfig, RunConfig, SourceConfig
from trainer_runtime.core.files.corpus import Source, fingerprint, list_files
from trainer_runtime.host.environment.training_python import TrainingPython
from trainer_runtime.host.prepare.data_card import data_card
from trainer_runtime.host.prepare.shards import prepare
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.data.documents import Piece
from trainer_runtime.train.data.filters import LONGEST_CHARACTERS, Filters, report

_PROSE = (
    "The house at the end of the road was old, and nobody in the village knew who had built it. "
    "It stood there with its windows to the sea. On quiet evenings the children went up to it and "
    "listened to the wind. They said that it was the voice of those who had left for the city. "
    "In the morning they had forgotten it, as one forgets a dream that was not meant for the day.\n"
)
_ROWS, _TEXT = SourceConfig("rows", format="jsonl"), SourceConfig("files", format="text")


def pieces(*texts: str) -> list[Piece]:
    return [(text, True, 1.0) for text in texts]


def kept(
    folder: Path, config: FilterConfig, *texts: str, source: SourceConfig = _ROWS
) -> tuple[list[str], dict[str, int]]:
    folder.mkdir(exist_ok=True)
    filters = Filters(config, folder)
    if config.dedup == "minhash":
        filters.find_near_duplicates([(source, iter(pieces(*texts)))])
    whole, held = [], ""
    for text, ends, _ in filters.apply(source, iter(pieces(*texts))):
        held += text
        if ends:
            whole, held = [*whole, held], ""
    counts = filters.counts(source.name)
    filters.close()
    assert not list(folder.iterdir())
    assert counts["of"] == len(texts) == len(whole) + sum(counts["dropped"].values())
    return whole, {
        **counts["dropped"],
        **({"masked": counts["masked"]} if counts["masked"] else {}),
    }


def test_each_filter_drops_and_counts_what_is_its_own(tmp_path: Path) -> None:
    short, code = "Too short.", "x = {1: 2}\n" * 100
    assert kept(tmp_path, FilterConfig(min_chars=20), short, code) == ([code], {"min_chars": 1})
    assert kept(tmp_path, FilterConfig(gopher_quality=True), short, code, _PROSE) == (
        [_PROSE],
        {"gopher_quality": 2},
    )
    edited, dropped = kept(tmp_path, FilterConfig(c4_quality=True), code, f"Menu\n{_PROSE}" * 2)
    assert dropped == {"c4_quality": 1}
    assert edited == [f"{_PROSE}{_PROSE}".strip()]


def test_the_first_of_equal_texts_stays(tmp_path: Path) -> None:
    config = FilterConfig(dedup="exact")
    assert kept(tmp_path, config, "a", "b", "a", "A", "b") == (
        ["a", "b", "A"],
        {"exact_duplicate": 2},
    )


def test_one_of_nearly_equal_texts_stays(tmp_path: Path) -> None:
    chance = random.Random(3)
    words = [f"{chance.choice('bcdfgh')}{chance.choice('aeiou')}{n % 50}" for n in range(3000)]
    texts = []
    for number in range(10):
        own = words[number * 300 : (number + 1) * 300]
        texts += [" ".join(own), " ".join([*own[:-2], "another", "end"])]
    texts.append("few words")
    whole, dropped = kept(tmp_path, FilterConfig(dedup="minhash"), *texts)
    assert dropped == {"near_duplicate": 10} and len(whole) == 11
    assert all(
        (texts[2 * number] in whole) != (texts[2 * number + 1] in whole) for number in range(10)
    )
    assert kept(tmp_path, FilterConfig(dedup="minhash"), *texts)[0] == whole
    assert kept(tmp_path, FilterConfig(dedup="minhash"), "few", "words") == (["few", "words"], {})


def test_addresses_are_masked_in_any_order_alike(tmp_path: Path) -> None:
    texts = ["Write to jane@corp.com or 8.8.8.8.", "joe@corp.com", "none at 10.0.0.1"]
    masked = ["Write to email@example.com or 22.214.171.124.", "email@example.com", texts[2]]
    config = FilterConfig(pii="mask")
    assert kept(tmp_path, config, *texts) == (masked, {"masked": 2})
    assert kept(tmp_path, config, *reversed(texts))[0] == masked[::-1]


def test_a_text_that_is_too_long_is_dropped_and_a_file_of_text_refused(tmp_path: Path) -> None:
    long = "a" * (LONGEST_CHARACTERS + 1)
    config = FilterConfig(min_chars=2)
    assert kept(tmp_path, config, "abc", long, "d") == (["abc"], {"too_long": 1, "min_chars": 1})
    with pytest.raises(ConfigError, match="judge whole texts: give rows"):
        list(Filters(config, tmp_path).apply(_TEXT, iter(pieces(long))))


def test_a_report_says_how_many_were_dropped_by_which_filter() -> None:
    counts = {"of": 3001, "dropped": {"min_chars": 1000}, "masked": 3}
    assert report(counts) == "1,000 of 3,001 texts dropped: min_chars 1,000; 3 masked"
    assert report({"of": 2, "dropped": {}, "masked": 0}) == "0 of 2 texts dropped"


def config_of(folder: Path, filters: dict[str, Any]) -> RunConfig:
    """Of two sources of JSON lines, and a validation file with what they have."""
    named = {"a": ["one text", "short", "one text"], "b": ["one text", "another text", "last text"]}
    sources = []
    for name, texts in {**named, "own": ["one text", "one text", "short"]}.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
        is_own = name == "own"
        sources.append(Source(name, str(path), list_files(path), "jsonl", is_own))
    described = [{"name": one.name, "path": one.path, "format": "jsonl"} for one in sources]
    whole = FilterConfig(**filters).to_dict()
    data = {
        "sources": described[:2],
        "validation": described[2:],
        "tokenizer": "byte",
        "seq_len": 4,
        "filters": whole,
        "fingerprint": fingerprint(sources, "byte", 4, filters=whole),
        "cache_dir": str(folder / "cache"),
    }
    return RunConfig.parse({"data": data})


def test_the_preparation_filters_what_is_trained_on_and_reports_it(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"dedup": "exact", "min_chars": 6})
    said: list[str] = []
    entry = prepare(config, said.append, TrainingPython(sys.executable))
    a, b, own = json.loads((entry / "meta.json").read_text())["sources"]
    assert (a["documents"], b["documents"], own["documents"]) == (1, 2, 3)
    assert a["filtered"] == {
        "of": 3,
        "dropped": {"exact_duplicate": 1, "min_chars": 1},
        "masked": 0,
    }
    assert "data: b: 1 of 3 texts dropped: exact_duplicate 1" in said
    assert "filtered" not in own
    card = {source.name: source for source in data_card(config).sources}
    assert (card["a"].texts, card["b"].dropped) == (3, {"exact_duplicate": 1})
    assert sorted(path.suffix for path in entry.iterdir()) == [".bin"] * 3 + [".json"] * 2
    other = config_of(tmp_path, {"dedup": "exact"})
    assert other.data.fingerprint != config.data.fingerprint
