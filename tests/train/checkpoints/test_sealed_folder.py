"""A folder that a framework wrote becomes a checkpoint that others may read as any new file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from trainer_runtime.core.files.manifest import MANIFEST_NAME, Manifest
from trainer_runtime.train.checkpoints.folder import seal_folder


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_sealed_files_may_be_read_as_the_umask_says(tmp_path: Path, umask: int, mode: int) -> None:
    written = tmp_path / "written"
    written.mkdir()
    outside = tmp_path / "outside"
    for path in (outside, written / "model.safetensors"):
        path.write_bytes(b"weights")
        path.chmod(0o600)
    (written / "run.sh").write_text("true")
    (written / "run.sh").chmod(0o755)
    (written / "linked").symlink_to(outside)
    before = os.umask(umask)
    try:
        seal_folder(written, tmp_path / "final", Manifest(1, 1, 0.0, {}, (), "", ()), lambda: None)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("final/*")}
    assert modes == {
        "model.safetensors": mode,
        MANIFEST_NAME: mode,
        "run.sh": 0o755,
        "linked": 0o600,
    }
