"""Whether a checkpoint that a foreign program saved is whole."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.script.beginning import unreported_prunings
from trainer_runtime.host.script.seal import Request, seal, step_in_name
from trainer_runtime.host.script.whole import TornError, judge


def archive(path: Path, size: int = 5000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.pkl", b"\x80\x02}." + bytes(size))
    return path


def asked(path: Path, run: Path, **more: Any) -> Request:
    """A request by an interpreter without PyTorch."""
    return Request(str(path), str(run / "code"), attempt=1, fallback=0, python="false", **more)


def tensors(path: Path) -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    return path


def trainer_folder(folder: Path) -> Path:
    folder.mkdir()
    tensors(folder / "model.safetensors")
    archive(folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 500}))
    return folder


@pytest.mark.parametrize("left", [0, 100, 4000])
def test_a_torn_archive_is_refused(tmp_path: Path, left: int) -> None:
    path = archive(tmp_path / "ckpt.pt")
    assert judge(path).archives == ("ckpt.pt",)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(TornError, match="torn"):
        judge(path)


def test_a_changed_byte_of_an_archive_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "ckpt.pt")
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    with pytest.raises(TornError, match="CRC-32"):
        judge(path)


def test_torn_safetensors_are_refused(tmp_path: Path) -> None:
    path = tensors(tmp_path / "model.safetensors")
    judge(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TornError, match="bytes instead of"):
        judge(path)


@pytest.mark.parametrize("missing", ["model.safetensors", "optimizer.pt"])
def test_a_folder_of_a_trainer_is_complete_or_refused(tmp_path: Path, missing: str) -> None:
    folder = trainer_folder(tmp_path / "checkpoint-500")
    assert judge(folder).step == 500
    (folder / missing).unlink()
    with pytest.raises(TornError, match="incomplete"):
        judge(folder)


def test_an_index_needs_each_file_that_it_names(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    tensors(tmp_path / "model-1.safetensors")
    with pytest.raises(TornError, match=r"model-2.safetensors is missing"):
        judge(tmp_path)


def test_a_distributed_checkpoint_needs_its_metadata_and_each_shard(tmp_path: Path) -> None:
    (tmp_path / "__0_0.distcp").write_bytes(b"one")
    with pytest.raises(TornError, match="written last"):
        judge(tmp_path)
    named = {"a": "__0_0.distcp", "b": "__1_0.distcp"}
    (tmp_path / ".metadata").write_bytes(pickle.dumps(named))
    with pytest.raises(TornError, match=r"__1_0\.distcp"):
        judge(tmp_path)
    (tmp_path / "__1_0.distcp").write_bytes(b"two")
    judge(tmp_path)


@pytest.mark.parametrize(
    ("name", "pattern", "step"),
    [
        ("out/ckpt_500.pt", r"ckpt_(\d+)", 500),
        ("out/ckpt_500.pt", None, 500),
        ("out/v2/checkpoint-20", None, 20),
        ("out/ckpt.pt", None, None),
        ("out/other.pt", r"ckpt_(\d+)", None),
    ],
)
def test_the_step_stands_in_the_name(name: str, pattern: str | None, step: int | None) -> None:
    assert step_in_name(Path("/base", name), Path("/base"), pattern) == step


def test_files_that_are_kept_by_the_program_are_shared_and_stay(tmp_path: Path) -> None:
    answers = []
    for step in (10, 20, 30, 40):
        path = archive(tmp_path / f"code/out/ckpt_{step}.pt")
        request = asked(path, tmp_path)
        answers.append(seal(tmp_path / "checkpoints", request))
    assert [answer["step"] for answer in answers] == [10, 20, 30, 40]
    assert all(answer["pruned"] == [] for answer in answers)
    assert (tmp_path / "checkpoints/step-00000010/ckpt_10.pt").stat().st_nlink == 2


def test_with_keep_latest_the_programs_own_older_files_go_too(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        path = archive(tmp_path / f"code/out/ckpt_{step}.pt")
        request = asked(path, tmp_path, keep_latest=2)
        answer = seal(tmp_path / "checkpoints", request)
    assert answer["pruned"] == [10]
    assert unreported_prunings(RunFolder(tmp_path)) == [10]
    left = sorted(path.name for path in (tmp_path / "code/out").iterdir())
    assert left == ["ckpt_20.pt", "ckpt_30.pt"]


def test_a_file_that_is_replaced_is_copied_and_two_copies_stay(tmp_path: Path) -> None:
    path = archive(tmp_path / "code/ckpt.pt")
    for step in (10, 20, 30):
        request = asked(path, tmp_path, reported=step, is_one_file=True)
        seal(tmp_path / "checkpoints", request)
    folders = sorted((tmp_path / "checkpoints").glob("step-*"))
    assert [folder.name[-2:] for folder in folders] == ["20", "30"]
    path.write_bytes(b"torn")
    assert [verify(folder) for folder in folders] == [[], []]


def test_a_seal_whose_relay_was_killed_leaves_nothing_in_the_log(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    request = asked(archive(tmp_path / "code" / "ckpt-20.pt"), tmp_path)
    sealing = subprocess.Popen(
        [sys.executable, "-m", "trainer_runtime", "seal", "."],
        cwd=run,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert sealing.stdin and sealing.stdout and sealing.stderr
    sealing.stdout.close()  # as the kernel does for a relay that is killed
    with sealing.stdin:
        sealing.stdin.write(request.to_json())
    assert (sealing.stderr.read(), sealing.wait(60)) == (b"", 0)
