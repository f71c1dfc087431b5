"""Checkpoints in an object store: whole or not listed, resumed uploads, digests of what returns."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from support.train.checkpoint_folders import write_checkpoint
from support.train.object_store import Bucket

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainer_runtime.train.checkpoints.stored_checkpoints import NotWholeError, StoredCheckpoints


@pytest.fixture
def stored(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> StoredCheckpoints:
    for name, value in bucket.variables.items():
        monkeypatch.setenv(name, value)
    return StoredCheckpoints(StoreAddress("s3", bucket.name, "runs/small-1"))


def test_uploaded_checkpoints_are_listed_and_come_back_with_their_digests(
    stored: StoredCheckpoints, tmp_path: Path
) -> None:
    names = [write_checkpoint(tmp_path / "run", step) for step in (20, 40)]
    stored.upload(tmp_path / "run", names)
    assert stored.steps() == [20, 40]
    assert stored.download(tmp_path / "other", [60, 40, 20]) == 40
    assert verify(tmp_path / "other" / names[1]) == []
    assert not list((tmp_path / "other").glob(".writing-*"))


def test_a_step_without_all_of_its_objects_is_not_listed(
    stored: StoredCheckpoints, bucket: Bucket, tmp_path: Path
) -> None:
    names = [write_checkpoint(tmp_path / "run", step) for step in (20, 40, 60)]
    stored.upload(tmp_path / "run", names)
    bucket.remove(f"runs/small-1/{names[0]}/manifest.json")
    bucket.remove(f"runs/small-1/{names[1]}/state.json")
    bucket.put(f"runs/small-1/{names[2]}/state.json", b"{ }")
    assert stored.steps() == []
    with pytest.raises(NotWholeError, match="none of the steps 60, 40, 20"):
        stored.download(tmp_path / "other", [60, 40, 20])


def test_pruned_steps_leave_the_store_once_a_newer_one_is_there(
    stored: StoredCheckpoints, bucket: Bucket, tmp_path: Path
) -> None:
    old = write_checkpoint(tmp_path / "run", 20)
    stored.upload(tmp_path / "run", [old])
    stored.upload(tmp_path / "run", ["step-00000030"])  # it was pruned meanwhile
    assert stored.steps() == [20]
    stored.upload(tmp_path / "run", [write_checkpoint(tmp_path / "run", 40)])
    assert stored.steps() == [40]
    assert not [key for key in bucket.names() if old in key]


def test_a_step_that_was_saved_again_replaces_the_one_before(
    stored: StoredCheckpoints, tmp_path: Path
) -> None:
    stored.upload(tmp_path / "run", [write_checkpoint(tmp_path / "run", 20)])
    name = write_checkpoint(tmp_path / "run", 20, b"others", attempt=2)
    stored.upload(tmp_path / "run", [name])
    stored.download(tmp_path / "other", [20])
    assert (tmp_path / "other" / name / "model.safetensors").read_bytes() == b"others" * 1000


def test_an_interrupted_upload_sends_only_what_is_missing(
    stored: StoredCheckpoints, bucket: Bucket, tmp_path: Path
) -> None:
    name = write_checkpoint(tmp_path / "run", 20)
    stored.upload(tmp_path / "run", [name])
    place = f"runs/small-1/{name}"
    bucket.remove(f"{place}/manifest.json")
    bucket.remove(f"{place}/state.json")
    before = bucket.client.head_object(Bucket=bucket.name, Key=f"{place}/model.safetensors")
    digest = hashlib.sha256((tmp_path / "run" / name / "manifest.json").read_bytes()).hexdigest()
    note = {"manifest": digest, "files": ["model.safetensors"]}
    bucket.put(f"runs/small-1/.uploading-{name}.json", json.dumps(note).encode())
    stored.upload(tmp_path / "run", [name])
    after = bucket.client.head_object(Bucket=bucket.name, Key=f"{place}/model.safetensors")
    assert before["LastModified"] == after["LastModified"]
    assert stored.steps() == [20]
    assert not [key for key in bucket.names() if ".uploading-" in key]


def test_a_checkpoint_that_is_damaged_here_is_not_uploaded(
    stored: StoredCheckpoints, tmp_path: Path
) -> None:
    name = write_checkpoint(tmp_path / "run", 20)
    (tmp_path / "run" / name / "state.json").write_bytes(b"[]")
    with pytest.raises(NotWholeError, match=r"state\.json"):
        stored.upload(tmp_path / "run", [name])
    assert stored.steps() == []


def test_a_checkpoint_that_was_damaged_in_the_store_is_refused(
    stored: StoredCheckpoints, bucket: Bucket, tmp_path: Path
) -> None:
    name = write_checkpoint(tmp_path / "run", 20)
    stored.upload(tmp_path / "run", [name])
    bucket.put(f"runs/small-1/{name}/state.json", b"[]")
    with pytest.raises(NotWholeError, match=r"state\.json"):
        stored.download(tmp_path / "other", [20])
    assert not (tmp_path / "other" / name).exists()
    shutil.rmtree(tmp_path / "other")
