from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_runtime.core.files import manifest
from trainer_runtime.core.files.listing import LeftOut, ListedFile, chunk_digest, list_files
from trainer_runtime.core.files.manifest import ChunkHasher, Manifest

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with two checkpoints, a final model and two logs."""
    root = tmp_path / "run"
    for name in ("attempts/1/train.log", "attempts/2/train.log", "train.py", "final/config.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    for step in (20, 40):
        folder = root / f"checkpoints/step-{step:08d}"
        folder.mkdir(parents=True)
        entries = []
        for name in ("model.safetensors", "state.json"):
            data = f"{name} {step}".encode()
            (folder / name).write_bytes(data)
            hasher = ChunkHasher()
            hasher.update(data)
            entries.append(hasher.entry(name))
        made = Manifest(step, 1, 0.0, {}, (), "0" * 64, tuple(entries))
        (folder / "manifest.json").write_bytes(manifest.build(made))
    return root


def paths(root: Path, pattern: str) -> list[str]:
    return [item.path for item in list_files(root, pattern) if isinstance(item, ListedFile)]


def left_out(root: Path, pattern: str) -> dict[str, str]:
    return {
        item.path: item.reason for item in list_files(root, pattern) if isinstance(item, LeftOut)
    }


STEP_40 = [
    "checkpoints/step-00000040/manifest.json",
    "checkpoints/step-00000040/model.safetensors",
    "checkpoints/step-00000040/state.json",
]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("train.py", ["train.py"]),
        ("attempts/*/train.log", ["attempts/1/train.log", "attempts/2/train.log"]),
        ("attempts/[2-9]/*", ["attempts/2/train.log"]),
        ("checkpoints/step-00000040", STEP_40),
        ("checkpoints/step-00000040/", STEP_40),
        ("checkpoints/*40/**", STEP_40),
        ("**/config.json", ["final/config.json"]),
        ("final/**", ["final/config.json"]),
        ("./final", ["final/config.json"]),
        ("**/**/**/**/**/**/**/nothing", []),
        ("../**", []),
        ("/etc/passwd", []),
    ],
)
def test_a_pattern_means_files_and_folders_with_what_is_in_them(
    run: Path, pattern: str, expected: list[str]
) -> None:
    assert paths(run, pattern) == expected


def test_digests_are_the_manifests_or_computed(run: Path) -> None:
    folder = run / "checkpoints/step-00000040"
    recorded = {entry.path: entry.sha256 for entry in manifest.read(folder).files}
    for item in list_files(run, "checkpoints/*40"):
        assert isinstance(item, ListedFile)
        data = (run / item.path).read_bytes()
        assert item.sha256 == (hashlib.sha256(data).hexdigest(),)
        assert item.size_bytes == len(data)
        assert item.mtime_ns == (run / item.path).stat().st_mtime_ns
        name = Path(item.path).name
        assert name == "manifest.json" or recorded[name] == item.sha256


def test_a_checkpoints_digests_are_those_that_were_written_whatever_is_there_now(run: Path) -> None:
    damaged = run / "checkpoints/step-00000040/model.safetensors"
    before = next(iter(list_files(run, "**/step-00000040/model.*")))
    data = bytearray(damaged.read_bytes())
    data[3] ^= 1
    damaged.write_bytes(data)
    after = next(iter(list_files(run, "**/step-00000040/model.*")))
    assert isinstance(before, ListedFile) and isinstance(after, ListedFile)
    assert after.sha256 == before.sha256
    damaged.write_bytes(data[:-1])
    assert (
        "is damaged" in left_out(run, "checkpoints")["checkpoints/step-00000040/model.safetensors"]
    )


def test_links_are_never_followed_and_are_reported(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private.txt").write_text("private")
    (run / "final/link.txt").symlink_to(outside / "private.txt")
    (run / "final/folder").symlink_to(outside)
    os.mkfifo(run / "final/pipe")
    skipped = left_out(run, "final")
    assert set(skipped) == {"final/link.txt", "final/folder", "final/pipe"}
    assert paths(run, "final/**") == ["final/config.json"]
    assert "final/folder" in left_out(run, "final/folder/private.txt")
    assert paths(run, "final/folder/private.txt") == []
    assert chunk_digest(run, "final/link.txt", 0, 7) is None
    assert chunk_digest(run, "final/folder/private.txt", 0, 7) is None


@pytest.mark.parametrize("name", [".secrets.json", ".trainer.lock", "final/.model.part"])
def test_secrets_locks_and_halves_are_never_listed(run: Path, name: str) -> None:
    (run / name).write_text("secret")
    (run / "checkpoints/.writing-step-00000060-7").mkdir()
    (run / "checkpoints/.writing-step-00000060-7/model").write_text("half")
    assert [path for path in paths(run, "**") if "/." in f"/{path}"] == []
    assert left_out(run, name) == {name: "is never fetched"}
    assert chunk_digest(run, name, 0, 6) is None


def test_names_that_could_do_harm_are_left_out(run: Path) -> None:
    (run / "final/a\nb").write_text("x")
    (run / os.fsdecode(b"final/\xff")).write_text("x")
    assert paths(run, "final") == ["final/config.json"]
    assert len(left_out(run, "final")) == 2
    assert all(path.isprintable() and path.isascii() for path in left_out(run, "final"))


def test_digests_of_what_is_large_are_computed_when_asked_for(run: Path) -> None:
    size = manifest.CHUNK_BYTES + 5
    with (run / "large").open("wb") as file:
        file.truncate(size)
        file.seek(size - 5)
        file.write(b"rest!, and what grew later")
    (item,) = list_files(run, "large")
    assert isinstance(item, ListedFile) and item.sha256 is None
    assert chunk_digest(run, "large", 1, size) == hashlib.sha256(b"rest!").hexdigest()
    zeros = hashlib.sha256(bytes(manifest.CHUNK_BYTES)).hexdigest()
    assert chunk_digest(run, "large", 0, size) == zeros
    assert chunk_digest(run, "large", 2, 3 * size) is None
    assert chunk_digest(run, "../run/large", 0, size) is None


def test_the_runtime_prints_one_line_of_json_per_file(run: Path) -> None:
    def printed(*arguments: str) -> list[dict[str, object]]:
        command = [sys.executable, "-m", "trainer_runtime", *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    (row,) = printed("files", "--", str(run), "train.py")
    assert row == {
        "path": "train.py",
        "size": 8,
        "mtime_ns": (run / "train.py").stat().st_mtime_ns,
        "sha256": [hashlib.sha256(b"train.py").hexdigest()],
    }
    assert printed("files", "--", str(run), "-x") == []
    (digest,) = printed("digest", "--", str(run), "train.py", "0", "5")
    assert digest == {"sha256": hashlib.sha256(b"train").hexdigest()}
