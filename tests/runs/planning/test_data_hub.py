"""Data sets of a hub as sources: listed when planning, or refused; fetched by the host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.plan.planned_spec import planned, refused
from support.runs.running_run import LONGEST_S, CommandLine
from support.train.hub_server import REVISION, Hub, serving

from trainmaster.sync.workspace import Workspace

_CARD = {
    "license": "cc-by-4.0",
    "configs": [
        {"config_name": "en", "data_files": [{"split": "train", "path": "en/*.jsonl"}]},
        {
            "config_name": "de",
            "data_files": [
                {"split": "train", "path": ["de/part-*.jsonl"]},
                {"split": "test", "path": "de/held.jsonl"},
            ],
        },
    ],
}


def rows(path: Path, count: int, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"text": f"{text} {number}"}) for number in range(count))
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    folder = tmp_path / "of the hub"
    for name, count in (("en/a", 90), ("de/part-0", 60), ("de/part-1", 70), ("de/held", 50)):
        rows(folder / f"{name}.jsonl", count, f"A line of {name}")
    (folder / "README.md").write_text("A card.")
    with serving() as hub:
        hub.datasets["some/lines"] = folder
        hub.cards["some/lines"] = _CARD
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


def spec_of(*paths: str, held_out: str | None = None, **changes: Any) -> str:
    data: dict[str, Any] = {"sources": [{"path": path, "format": "jsonl"} for path in paths]}
    if held_out is not None:
        data["validation"] = [{"path": held_out, "format": "jsonl"}]
    spec = {
        "name": "small",
        "framework": "nanogpt",
        "model": {"n_layer": 1, "n_head": 2, "d_model": 32},
        "data": {**data, "seq_len": 32, **changes.pop("data", {})},
        "batch": {"tokens": 256},
        "steps": 4,
        "compute": {"gpus": 0},
        "host": "debug",
        **changes,
    }
    return json.dumps(spec)


def test_a_split_s_files_are_those_that_the_card_names(workspace: Workspace, hub: Hub) -> None:
    made = planned(workspace, spec_of("hf://some/lines#de", held_out="hf://some/lines#de:test"))
    training, held_out = made.corpus.sources
    assert training.fetched is not None and held_out.fetched is not None
    assert [name for name, _ in training.fetched.files] == ["de/part-0.jsonl", "de/part-1.jsonl"]
    assert [name for name, _ in held_out.fetched.files] == ["de/held.jsonl"]
    fetched = {item["folder"]: item for item in made.config["inputs"]}
    for source in (*made.config["data"]["sources"], *made.config["data"]["validation"]):
        item = fetched[source["path"]]
        assert (item["hub"], item["revision"]) == ("some/lines", REVISION)
        assert (item["repo_type"], source["revision"]) == ("dataset", REVISION)
        assert source["license"] == "cc-by-4.0"
    whole = planned(workspace, spec_of("hf://some/lines#en"))
    assert whole.corpus.fingerprint != made.corpus.fingerprint


def test_without_a_card_the_words_of_paths_name_the_splits(workspace: Workspace, hub: Hub) -> None:
    folder = hub.datasets["some/lines"].with_name("plain")
    for name in ("data/train-00000-of-00002", "data/train-00001-of-00002", "data/validation-0"):
        rows(folder / f"{name}.jsonl", 60, name)
    hub.datasets["plain"] = folder
    made = planned(workspace, spec_of("hf://plain", held_out="hf://plain#:validation"))
    assert [source.files for source in made.corpus.sources] == [2, 1]


@pytest.mark.parametrize(
    ("path", "data_format", "code", "words"),
    [
        ("hf://some/lines", "jsonl", "DATA_MISSING", "configurations en, de"),
        ("hf://some/lines#fr", "jsonl", "DATA_MISSING", "no configuration 'fr', but en, de"),
        ("hf://some/lines#de:dev", "jsonl", "DATA_MISSING", "no split 'dev', but train, test"),
        ("hf://some/lines#en", "parquet", "DATA_MISSING", "set format to jsonl"),
        ("hf://some/nothing", "jsonl", "HUB_NOT_FOUND", "datasets/some/nothing"),
        ("hf://../etc", "jsonl", "INVALID_VALUE", "not an address"),
        ("hf://some/lines/../more", "jsonl", "INVALID_VALUE", "not an address"),
    ],
)
def test_what_the_hub_has_not_is_named_with_what_it_has(
    workspace: Workspace, hub: Hub, path: str, data_format: str, code: str, words: str
) -> None:
    data = {"sources": [{"path": path, "format": data_format}]}
    error = refused(workspace, spec_of(data=data))
    assert error.code == code
    assert words in str(error), str(error)


def test_rows_of_the_wrong_kind_are_refused_before_anything_is_fetched(
    workspace: Workspace, hub: Hub
) -> None:
    (hub.datasets["some/lines"] / "en" / "a.jsonl").write_text('{"words": "x"}\n' * 50)
    assert refused(workspace, spec_of("hf://some/lines#en")).code == "DATA_MALFORMED"


def test_a_gated_data_set_is_refused_when_planning(workspace: Workspace, hub: Hub) -> None:
    hub.gated.add("some/lines")
    error = refused(workspace, spec_of("hf://some/lines#en"))
    assert error.code == "HUB_GATED"
    assert f"{hub.endpoint}/datasets/some/lines" in error.fix


def test_a_split_that_is_trained_on_is_not_held_out(workspace: Workspace, hub: Hub) -> None:
    spec = spec_of("hf://some/lines#de", held_out="hf://some/lines#de")
    assert "is trained on, too" in str(refused(workspace, spec))


@pytest.mark.engine
def test_a_training_fetches_its_data_set_once_and_trains_on_it(
    command: CommandLine, hub: Hub, tmp_path: Path
) -> None:
    command.environment |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "hf")}
    spec = tmp_path / "spec.json"
    spec.write_text(spec_of("hf://some/lines#de", held_out="hf://some/lines#de:test", host="local"))
    for _ in range(2):
        run = command("launch", str(spec))["run_id"]
        command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
        assert command("status", run)["step"] == 4
    fetched = [asked for asked in hub.asked if asked.startswith("GET /datasets/some/lines/")]
    files = [asked for asked in fetched if "bytes=0-" not in asked]
    assert len([asked for asked in files if asked.endswith("part-1.jsonl")]) == 1
    assert not [asked for asked in files if "README" in asked or "/en/" in asked]
