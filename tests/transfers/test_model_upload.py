"""Uploads a model and a tokenizer of this machine to a host over SSH."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.backends.ssh_hosts import Sshd
from support.runs.running_run import LONGEST_S, CommandLine, wait_until
from support.train.model_folders import write_model, write_tokenizer

from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.slow

SPEC = """\
name: small
framework: hf
model: {{path: {model}}}
data: {{sources: [{{path: {corpus}}}], seq_len: 32, tokenizer: {tokenizer}}}
batch: {{tokens: 256}}
steps: 2
host: box
environment: {{python: {python}}}
"""


def test_a_model_and_its_tokenizer_arrive_whole_and_are_sent_once(
    remote: CommandLine, sshd: Sshd, workspace: Workspace, corpus: Path, tmp_path: Path
) -> None:
    kept = write_model(tmp_path / "blobs")
    model = tmp_path / "model"
    model.mkdir()
    for file in kept.iterdir():  # as the hub's own cache has them
        (model / file.name).symlink_to(file)
    (model / "optimizer.pt").write_bytes(b"not of the model")
    tokenizer = write_tokenizer(tmp_path / "tokenizer", ["<x>"])
    values = {"model": model, "corpus": corpus, "tokenizer": tokenizer, "python": sys.executable}
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(**values))
    run = remote("launch", str(spec))["run_id"]
    config = workspace.control.run(run).document
    places = {item["what"]: Path(item["folder"]) for item in config["inputs"]}
    assert set(places) == {"model", "tokenizer"}
    assert config["model"]["path"] == str(places["model"])
    assert config["data"]["tokenizer"] == str(places["tokenizer"])
    wait_until(
        lambda: all((one / ".complete").exists() for one in places.values()),
        "the folders",
        LONGEST_S,
    )
    sent = {name: (places["model"] / name).read_bytes() for name in os.listdir(kept)}
    assert sent == {file.name: file.read_bytes() for file in kept.iterdir()}
    assert not (places["model"] / "optimizer.pt").exists()
    entry = Path(config["data"]["cache_dir"], "data", config["data"]["fingerprint"])
    wait_until((entry / "meta.json").exists, "the shards", LONGEST_S)
    remote("stop", run)
    again = remote("launch", str(spec))["run_id"]
    assert workspace.control.run(again).document["inputs"] == config["inputs"]
    remote("stop", again)
