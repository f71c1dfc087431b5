"""Models from a hub of the loopback, and rows of data sets, as steps of the preparation."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.train.hub_server import REVISION, Hub, serving
from support.train.model_folders import write_model

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.diagnosis.signatures import Outcome, find_in
from trainer_runtime.core.environment.setup_log import setup_step
from trainer_runtime.core.files.corpus import ROWS, Source, fingerprint, list_files
from trainer_runtime.host.environment.training_python import (
    InputUnavailableError,
    InputUnusableError,
    TrainingPython,
)
from trainer_runtime.host.prepare import preparation
from trainer_runtime.host.prepare.inputs import settle_inputs


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with serving() as hub:
        hub.models["some/model"] = write_model(tmp_path / "model")
        yield hub


def python_of(tmp_path: Path, endpoint: str, **variables: str) -> TrainingPython:
    known = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_ETAG_TIMEOUT": "60"}
    return TrainingPython(sys.executable, {**os.environ, **known, **variables})


def config_of(tmp_path: Path) -> RunConfig:
    model = tmp_path / "model"
    files = [[one.name, one.stat().st_size] for one in sorted(model.iterdir())]
    item = {
        "what": "model",
        "folder": str(tmp_path / "cache" / "models" / "some-model-0123456789ab"),
        "from": None,
        "hub": "some/model",
        "revision": REVISION,
        "files": files,
        "size_bytes": sum(size for _, size in files),
    }
    return RunConfig.parse({"inputs": [item]})


def test_a_hubs_model_comes_once_and_as_the_plan_saw_it(tmp_path: Path, hub: Hub) -> None:
    config, printed = config_of(tmp_path), []
    (tmp_path / "model" / "later.safetensors").write_bytes(b"not of the plan")
    settle_inputs(config, printed.append, python_of(tmp_path, hub.endpoint))
    folder = Path(config.inputs[0].folder)
    names = {name for name, _ in config.inputs[0].files}
    assert {one.name for one in folder.iterdir()} == {*names, ".complete"}
    assert (folder / "model.safetensors").read_bytes() == (
        tmp_path / "model" / "model.safetensors"
    ).read_bytes()
    assert setup_step(printed) is not None
    asked = len(hub.asked)
    settle_inputs(config, printed.append, python_of(tmp_path, hub.endpoint))
    assert len(hub.asked) == asked


def test_an_interrupted_fetch_is_resumed(tmp_path: Path, hub: Hub) -> None:
    write_model(tmp_path / "model", shapes={"w": (6000, 1000)})
    config, printed = config_of(tmp_path), []
    hub.cut_after = 11_000_000  # the client keeps what it has in pieces of 10 MiB
    settle_inputs(config, printed.append, python_of(tmp_path, hub.endpoint))
    fetched = Path(config.inputs[0].folder, "model.safetensors")
    assert fetched.read_bytes() == (tmp_path / "model" / "model.safetensors").read_bytes()
    assert any("Resuming" in line for line in printed)
    assert any("model.safetensors bytes=10485760-" in asked for asked in hub.asked)


def test_a_gated_model_is_refused_in_words_that_are_recognised(tmp_path: Path, hub: Hub) -> None:
    hub.gated.add("some/model")
    with pytest.raises(InputUnusableError, match="list HF_TOKEN under secrets") as refused:
        settle_inputs(config_of(tmp_path), print, python_of(tmp_path, hub.endpoint))
    assert codes_of(f"prepare: {refused.value}") == ["hf_gated_repo"]
    settle_inputs(
        config_of(tmp_path),
        print,
        python_of(tmp_path, hub.endpoint, HF_TOKEN=hub.token),
    )


def test_a_hub_that_is_away_may_be_there_later(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    away = "http://127.0.0.1:9"
    with pytest.raises(InputUnavailableError, match="couldn't connect to") as refused:
        settle_inputs(config_of(tmp_path), print, python_of(tmp_path, away))
    reason = str(refused.value).replace(away, "https://huggingface.co")
    assert codes_of(f"prepare: {reason}") == ["hf_network"]


def codes_of(line: str) -> list[str]:
    return [found.code for found in find_in([f"{line}\n".encode()], Outcome(code=77))]


def rows_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Any]) -> Path:
    """A config of a training of preferences in a working folder of its own."""
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.chdir(run)
    (run / "trainer_runtime").symlink_to(Path(preparation.__file__).parents[2])
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source = Source("main", str(path), list_files(path, "jsonl"), "jsonl")
    data = {
        "sources": [{"name": "main", "path": str(path), "format": "jsonl", "weight": 1.0}],
        "form": ROWS,
        "tokenizer": "byte",
        "seq_len": 16,
        "fingerprint": fingerprint([source], "byte", 16, ROWS),
        "cache_dir": str(tmp_path / "cache"),
    }
    config = run / "config.json"
    config.write_text(json.dumps({"run_id": "r", "method": "dpo", "data": data}))
    return config


def test_rows_are_read_before_the_trainer_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = {"prompt": "p", "chosen": "yes", "rejected": "no"}
    config = rows_config(tmp_path, monkeypatch, [pair] * 40)
    assert preparation.main(str(config)) == 0
    assert "data: 38 rows to train on, held out 2 of main" in capfd.readouterr().out
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair))
    assert preparation.main(str(config)) == 77
    assert "changed since the plan" in capfd.readouterr().err


def test_rows_without_the_methods_columns_are_reported_before_the_trainer_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = rows_config(tmp_path, monkeypatch, [{"prompt": "p", "chosen": "yes"}] * 40)
    assert preparation.main(str(config)) == 77
    said = capfd.readouterr().err
    assert "data source main: " in said and "line 1: it has no `rejected`" in said
