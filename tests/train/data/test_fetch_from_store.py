"""Objects of a store as a source: fetched by the host as the plan listed them, or refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.train.object_store import Bucket, refusing_s3

from trainer_runtime.core.config import RunConfig
from trainer_runtime.host.environment.training_python import (
    InputUnavailableError,
    InputUnusableError,
    TrainingPython,
)
from trainer_runtime.host.prepare.inputs import settle_inputs


def python_of(variables: dict[str, str]) -> TrainingPython:
    return TrainingPython(sys.executable, {**os.environ, **variables})


def config_of(
    tmp_path: Path, url: str, objects: dict[str, tuple[int, str]], **changes: Any
) -> RunConfig:
    """A config whose plan has listed the objects: name → size and ETag."""
    item = {
        "what": "data",
        "folder": str(tmp_path / "cache" / "datasets" / "listed"),
        "from": None,
        "hub": None,
        "revision": None,
        "files": [[name, size] for name, (size, _) in objects.items()],
        "etags": [etag for _, etag in objects.values()],
        "size_bytes": sum(size for size, _ in objects.values()),
        "store": url,
        "format": "jsonl",
        **changes,
    }
    return RunConfig.parse({"inputs": [item]})


def put(bucket: Bucket, name: str, content: bytes) -> dict[str, tuple[int, str]]:
    return {name: (len(content), bucket.put(f"corpus/{name}", content))}


def settle(config: RunConfig, variables: dict[str, str]) -> Path:
    settle_inputs(config, print, python_of(variables))
    return Path(config.inputs[0].folder)


def test_exactly_the_listed_objects_come_once(tmp_path: Path, bucket: Bucket) -> None:
    listed = put(bucket, "a.jsonl", b'{"text": "a"}\n') | put(bucket, "deep/b.jsonl", b"{}\n" * 9)
    put(bucket, "later.jsonl", b"not of the plan")
    config = config_of(tmp_path, f"s3://{bucket.name}/corpus", listed)
    folder = settle(config, bucket.variables)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {"a.jsonl", "deep/b.jsonl", ".complete"}
    assert (folder / "deep/b.jsonl").read_bytes() == b"{}\n" * 9
    bucket.remove("corpus/a.jsonl")
    assert settle(config, bucket.variables) == folder  # the store isn't asked again


def test_an_interrupted_fetch_continues_where_it_was(tmp_path: Path, bucket: Bucket) -> None:
    content = os.urandom(9 << 20)
    config = config_of(tmp_path, f"s3://{bucket.name}/corpus", put(bucket, "a.jsonl", content))
    building = tmp_path / "cache/datasets/.building-listed"
    building.mkdir(parents=True)
    (building / ".a.jsonl.part").write_bytes(b"\0" * 1000)  # stays as it is: it isn't read again
    folder = settle(config, bucket.variables)
    assert (folder / "a.jsonl").read_bytes() == b"\0" * 1000 + content[1000:]


def test_an_object_that_changed_since_the_plan_is_refused_with_both_etags(
    tmp_path: Path, bucket: Bucket
) -> None:
    listed = put(bucket, "a.jsonl", b'{"text": "a"}\n')
    new = bucket.put("corpus/a.jsonl", b'{"text": "b"}\n')
    with pytest.raises(InputUnusableError) as refused:
        settle(config_of(tmp_path, f"s3://{bucket.name}/corpus", listed), bucket.variables)
    assert listed["a.jsonl"][1] in str(refused.value) and new in str(refused.value)
    assert "plan again" in str(refused.value)


def test_an_object_that_is_gone_is_named(tmp_path: Path, bucket: Bucket) -> None:
    listed = put(bucket, "a.jsonl", b"{}\n") | put(bucket, "b.jsonl", b"{}\n")
    bucket.remove("corpus/b.jsonl")
    with pytest.raises(InputUnusableError, match=r"b\.jsonl is not there any more"):
        settle(config_of(tmp_path, f"s3://{bucket.name}/corpus", listed), bucket.variables)


def test_what_the_plan_could_not_list_the_host_lists_once(tmp_path: Path, bucket: Bucket) -> None:
    put(bucket, "a.jsonl", b'{"text": "a"}\n')
    put(bucket, "notes.txt", b"of another format")
    folder = settle(config_of(tmp_path, f"s3://{bucket.name}/corpus", {}), bucket.variables)
    assert [path.name for path in folder.iterdir() if path.suffix] == ["a.jsonl", ".objects.json"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://{name}/nothing", "nothing lies under this key"),
        ("s3://no-such-bucket-here/corpus", "was not found"),
        ("s3://{name}/corpus", r"not jsonl: set format to text"),
    ],
)
def test_what_is_not_in_the_store_is_named(
    tmp_path: Path, bucket: Bucket, url: str, words: str
) -> None:
    put(bucket, "a.txt", b"text")
    with pytest.raises(InputUnusableError, match=words):
        settle(config_of(tmp_path, url.format(name=bucket.name), {}), bucket.variables)


def test_refused_and_missing_keys_are_named_with_the_secrets_to_list(
    tmp_path: Path, bucket: Bucket
) -> None:
    config = config_of(tmp_path, f"s3://{bucket.name}/corpus", {})
    secrets = "list AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY under secrets"
    with (
        refusing_s3() as endpoint,
        pytest.raises(InputUnusableError, match=f"refuses these keys.*{secrets}"),
    ):
        settle(config, {**bucket.variables, "AWS_ENDPOINT_URL": endpoint})
    nobody = {"AWS_ENDPOINT_URL": bucket.endpoint, "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.raises(InputUnusableError, match=f"no keys for S3; {secrets}"):
        settle(config, {**nobody, "HOME": str(tmp_path)})


def test_a_package_that_is_not_there_is_named(tmp_path: Path, bucket: Bucket) -> None:
    (tmp_path / "s3fs.py").write_text('raise ImportError("not installed", name="s3fs")')
    config = config_of(tmp_path, f"s3://{bucket.name}/corpus", {})
    with pytest.raises(InputUnusableError, match="takes the package s3fs"):
        settle(config, {**bucket.variables, "PYTHONPATH": str(tmp_path)})


def test_a_store_that_is_away_may_be_there_later(tmp_path: Path, bucket: Bucket) -> None:
    config = config_of(tmp_path, f"s3://{bucket.name}/corpus", {})
    with pytest.raises(InputUnavailableError, match="could not be asked for"):
        settle(config, {**bucket.variables, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
