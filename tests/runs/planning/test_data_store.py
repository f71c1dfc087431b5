"""Objects of a store as sources: listed when planning, or refused, or left to the host."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from support.plan.planned_spec import planned, refused
from support.runs.running_run import LONGEST_S, CommandLine, wait_until
from support.train.object_store import KEYS, Bucket, refusing_s3

from trainmaster.sync.workspace import Workspace


def rows(count: int, words: str) -> bytes:
    lines = (json.dumps({"text": f"{words} {number}"}) for number in range(count))
    return "".join(f"{line}\n" for line in lines).encode()


_ALLOWED = f"secrets: {{allow: [{', '.join(sorted(KEYS))}]}}\n"


@pytest.fixture
def filled(bucket: Bucket, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    workspace.home.settings.write_text(_ALLOWED)
    for name, value in bucket.variables.items():
        monkeypatch.setenv(name, value)
    for part in range(2):
        bucket.put(f"corpus/part-{part}.jsonl", rows(90, f"A line of part {part}"))
    bucket.put("held/rows.jsonl", rows(50, "A line that is held out"))
    bucket.put("corpus/README.md", b"A description.")
    return bucket


def spec_of(path: str, held_out: str | None = None, **changes: Any) -> str:
    data: dict[str, Any] = {"sources": [{"path": path, "format": "jsonl"}], "seq_len": 32}
    if held_out is not None:
        data["validation"] = [{"path": held_out, "format": "jsonl"}]
    spec = {
        "name": "small",
        "framework": "nanogpt",
        "model": {"n_layer": 1, "n_head": 2, "d_model": 32},
        "data": data,
        "batch": {"tokens": 256},
        "steps": 4,
        "compute": {"gpus": 0},
        "host": "debug",
        "secrets": sorted(KEYS),
        **changes,
    }
    return json.dumps(spec)


def test_objects_are_listed_with_their_etags(workspace: Workspace, filled: Bucket) -> None:
    root = f"s3://{filled.name}"
    made = planned(workspace, spec_of(f"{root}/corpus", held_out=f"{root}/held/rows.jsonl"))
    training, held_out = made.config["inputs"]
    assert [name for name, _ in training["files"]] == ["part-0.jsonl", "part-1.jsonl"]
    assert all(len(etag) == 32 for etag in training["etags"])
    assert (held_out["store"], held_out["files"][0][0]) == (f"{root}/held/rows.jsonl", "rows.jsonl")
    assert made.config["data"]["sources"][0]["path"] == training["folder"]
    assert any(line.startswith("s3fs") for line in made.plan.requirements)
    assert not [secret for secret in KEYS.values() if secret in json.dumps(made.to_dict())]
    filled.put("corpus/part-0.jsonl", rows(90, "A line of part 9"))
    again = planned(workspace, spec_of(f"{root}/corpus"))
    assert again.config["inputs"][0]["folder"] != training["folder"]


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("s3://{name}/nothing", "STORE_NOT_FOUND", "nothing lies under this key"),
        ("s3://there-is-no-such-one", "STORE_NOT_FOUND", "not found"),
        ("s3://{name}/corpus/README.md", "DATA_MISSING", "its objects are empty"),
        ("s3://{name}/../other", "INVALID_VALUE", "not an address"),
        ("s3://{name}/*.jsonl", "INVALID_VALUE", "not an address"),
    ],
)
def test_what_the_store_has_not_is_named(
    workspace: Workspace, filled: Bucket, path: str, code: str, words: str
) -> None:
    error = refused(workspace, spec_of(path.format(name=filled.name)))
    assert error.code == code
    assert words in str(error), str(error)
    assert error.field == "data.sources[0].path"


def test_keys_that_the_store_refuses_are_named_before_anything_is_fetched(
    workspace: Workspace, filled: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusing_s3() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        error = refused(workspace, spec_of(f"s3://{filled.name}/corpus"))
    assert error.code == "STORE_REFUSED"
    assert "AWS_SECRET_ACCESS_KEY" in error.fix
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in str(error)


def test_what_this_machine_can_not_ask_the_host_lists(
    workspace: Workspace, filled: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    spec = spec_of(f"s3://{filled.name}/corpus")
    made = planned(workspace, spec)
    assert any("the host lists s3://" in warning for warning in made.plan.warnings)
    assert made.config["data"]["sources"][0]["is_listed"] is False
    # Nothing that an earlier plan had fetched or cut is taken for it.
    assert (
        planned(workspace, spec).config["data"]["fingerprint"]
        != (made.config["data"]["fingerprint"])
    )


def test_another_server_that_a_spec_names_is_not_shown_the_keys_of_this_machine(
    workspace: Workspace, filled: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    spec = spec_of(f"s3://{filled.name}/corpus", secrets=[])
    assert len(planned(workspace, spec).config["inputs"][0]["files"]) == 2
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    other = spec_of(
        f"s3://{filled.name}/corpus",
        secrets=[],
        env={"AWS_ENDPOINT_URL": filled.variables["AWS_ENDPOINT_URL"]},
    )
    made = planned(workspace, other)
    assert made.config["inputs"][0]["files"] == []
    assert any("no keys for S3" in warning for warning in made.plan.warnings)


def test_keys_are_no_part_of_a_spec(workspace: Workspace, filled: Bucket) -> None:
    error = refused(workspace, spec_of(f"s3://{filled.name}/corpus", env=KEYS))
    assert error.code == "SECRET_IN_SPEC"


def await_mirrored(command: CommandLine, run: str, step: int) -> None:
    def is_there() -> bool:
        return command("status", run)["checkpoint"].get("mirrored_step") == step

    wait_until(is_there, "the last checkpoint is in the store", LONGEST_S)


@pytest.mark.slow
def test_a_training_fetches_its_objects_and_mirrors_its_checkpoints(
    command: CommandLine, filled: Bucket, tmp_path: Path
) -> None:
    command.environment |= filled.variables
    (command.home / "settings.yaml").write_text(_ALLOWED)
    spec = tmp_path / "spec.json"
    root = f"s3://{filled.name}"
    checkpoint = {"every": 2, "mirror": f"{root}/runs"}
    spec.write_text(spec_of(f"{root}/corpus", host="local", checkpoint=checkpoint))
    run = command("launch", str(spec))["run_id"]
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    await_mirrored(command, run, 4)
    assert f"runs/{run}/step-00000004/manifest.json" in filled.names()
    assert not list(command.folder(run).root.glob(".secrets.json"))


@pytest.mark.engine
def test_another_host_continues_from_the_store(
    remote: CommandLine, filled: Bucket, tmp_path: Path
) -> None:
    remote.environment |= filled.variables
    (remote.home / "settings.yaml").write_text(_ALLOWED)
    spec = tmp_path / "spec.json"
    environment = {"python": sys.executable}
    variables = {name: filled.variables[name] for name in ("AWS_ENDPOINT_URL", "AWS_REGION")}
    checkpoint = {"every": 2, "mirror": f"s3://{filled.name}/runs"}
    source = f"s3://{filled.name}/corpus"
    changes = {"environment": environment, "env": variables, "checkpoint": checkpoint}
    spec.write_text(spec_of(source, host="local", **changes))
    run = remote("launch", str(spec))["run_id"]
    remote("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    await_mirrored(remote, run, 4)
    shutil.rmtree(remote.home / "local" / "runs" / run / "checkpoints")
    remote("resume", run, "--host", "box", "--set", "steps=8")
    remote("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    started = remote("status", run, "--detail")
    assert started["step"] == 8
    log = remote("logs", run, "--stream", "setup")["lines"]
    assert any("step 4 is here" in line for line in log), log
