"""What data sets of a hub are, before any plan."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.runs.running_run import run_async
from support.train.hub_server import REVISION, Hub, serving

from trainmaster.answers.data_inspection import InspectedSource
from trainmaster.errors.errors import PlanError
from trainmaster.runs.data.inspect_data import inspect_data
from trainmaster.sync.workspace import Workspace


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as hub:
        hub.datasets["some/rows"] = tmp_path / "of the hub"
        hub.datasets["some/rows"].mkdir()
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


def lines(count: int) -> bytes:
    rows = (
        {"prompt": f"What is {number}?", "completion": "A number. " * 9} for number in range(count)
    )
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def inspected(workspace: Workspace, named: str = "hf://some/rows") -> InspectedSource:
    (source,) = run_async(lambda: inspect_data(workspace, named)).sources
    return source


def test_a_data_set_is_known_by_the_beginnings_of_its_files(workspace: Workspace, hub: Hub) -> None:
    folder = hub.datasets["some/rows"]
    (folder / "train-0.jsonl").write_bytes(lines(20_000))
    (folder / "train-1.jsonl.gz").write_bytes(gzip.compress(lines(20_000)))
    (folder / "test.jsonl").write_bytes(lines(10))
    source = inspected(workspace)
    assert (source.format, source.files) == ("jsonl", {"jsonl": 2})
    assert source.rows_estimated and source.rows == pytest.approx(40_000, rel=0.5)
    assert source.methods is not None and source.methods["sft"] == "yes"
    assert any(REVISION[:12] in note for note in source.notes or [])
    requests = [line for line in hub.asked if "/resolve/" in line]
    assert all("bytes=0-1048575" in line for line in requests) and len(requests) == 2
    held_out = inspected(workspace, "hf://some/rows#:test")
    assert (held_out.rows, held_out.rows_estimated) == (10, None)


def test_a_small_parquet_file_is_read_and_a_large_one_only_listed(
    workspace: Workspace, hub: Hub
) -> None:
    datasets = pytest.importorskip("datasets")
    path = hub.datasets["some/rows"] / "train.parquet"
    datasets.Dataset.from_list([{"text": "a"}] * 50).to_parquet(path)
    source = inspected(workspace)
    assert (source.format, source.rows) == ("parquet", 50)
    path.write_bytes(bytes(17 << 20))
    large = inspected(workspace)
    assert (large.format, large.rows, large.files) == ("parquet", None, {"parquet": 1})
    assert any("over 16 MiB" in note for note in large.notes or [])


def test_what_the_hub_does_not_give_is_refused(workspace: Workspace, hub: Hub) -> None:
    (hub.datasets["some/rows"] / "a.jsonl").write_bytes(lines(3))
    with pytest.raises(PlanError, match="it has no split 'validation'"):
        inspected(workspace, "hf://some/rows#:validation")
    hub.gated.add("some/rows")
    for named, code in (("hf://some/rows", "HUB_GATED"), ("hf://no/rows", "HUB_NOT_FOUND")):
        with pytest.raises(PlanError) as raised:
            inspected(workspace, named)
        assert raised.value.code == code
