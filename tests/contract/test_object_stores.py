"""Every object store gives what a source and a mirror need of it, by its own fsspec package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.session.tiers import by_engines
from support.train.checkpoint_folders import write_checkpoint
from support.train.object_store import make_bucket
from support.train.store_emulators import azure_storage, google_storage

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainer_runtime.train.checkpoints.stored_checkpoints import StoredCheckpoints
from trainer_runtime.train.data.stored_objects import Obstacle, StoredObjects, StoreError


@pytest.fixture(params=["s3", *by_engines("gs", "az")])
def place(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoreAddress]:
    """An empty prefix of a store that this process's environment leads to."""

    def lead(variables: object) -> None:
        for name, value in dict(variables).items():
            monkeypatch.setenv(name, value)

    name = "bucket-of-tests"
    if request.param == "s3":
        bucket = make_bucket(request.getfixturevalue("s3_endpoint"))
        lead(bucket.variables)
        yield StoreAddress("s3", bucket.name, "prefix")
    elif request.param == "gs":
        with google_storage(name) as variables:
            lead(variables)
            yield StoreAddress("gs", name, "prefix")
    else:
        with azure_storage(name) as variables:
            lead(variables)
            yield StoreAddress("az", name, "prefix")


def test_objects_are_listed_with_etags_and_read_in_parts(
    place: StoreAddress, tmp_path: Path
) -> None:
    stored = StoredObjects(place)
    with pytest.raises(StoreError) as missing:
        stored.list()
    assert missing.value.obstacle is Obstacle.MISSING
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"0123456789")
    stored.put(file, "deep/rows.jsonl")
    root, [first] = stored.list()
    assert (root, first.name, first.size_bytes) == (place, "deep/rows.jsonl", 10)
    assert stored.read(root.below(first.name), 3, 6) == b"345"
    file.write_bytes(b"9876543210")
    stored.put(file, "deep/rows.jsonl")
    _, [changed] = stored.list()
    assert first.etag and changed.etag != first.etag
    alone, [only] = StoredObjects(place.below("deep/rows.jsonl")).list()
    assert (alone, only.name) == (place.below("deep"), "rows.jsonl")
    with pytest.raises(StoreError) as nowhere:
        StoredObjects(StoreAddress(place.scheme, "no-such-bucket-here")).list()
    assert nowhere.value.obstacle is Obstacle.MISSING


def test_checkpoints_go_there_and_come_back(place: StoreAddress, tmp_path: Path) -> None:
    stored = StoredCheckpoints(place)
    stored.try_writing()
    assert stored.steps() == []
    names = [write_checkpoint(tmp_path / "run", step) for step in (20, 40)]
    stored.upload(tmp_path / "run", names)
    stored.upload(tmp_path / "run", names[1:])
    assert stored.steps() == [40]
    assert stored.download(tmp_path / "other", [60, 40]) == 40
    assert verify(tmp_path / "other" / names[1]) == []
