"""Environments that are installed by digests: the lock's, and those of the first installation."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest
from support.host.fake_packages import make_wheel
from support.host.prepared_run import output_of

from trainer_runtime.core.environment.lock import DIGEST, LockedPackage
from trainer_runtime.host.environment.installers import (
    EnvironmentUnusableError,
    Installer,
    find_installer,
)
from trainer_runtime.host.environment.interpreters import probe_interpreter
from trainer_runtime.host.environment.venvs import Recipe, installed_packages, provide

pytestmark = [pytest.mark.slow, pytest.mark.engine]


class Host:
    """A host whose package index is a folder."""

    def __init__(self, folder: Path) -> None:
        self.wheels, self.cache, self._run = folder / "index", folder / "cache", folder / "run"
        self._run.mkdir()
        self.log: list[str] = []
        index = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
        source = {"PIP_FIND_LINKS": str(self.wheels), "PYTHONPATH": str(Path(__file__).parents[3])}
        self._variables = {**os.environ, **index, **source}

    def publish(self, name: str, words: str = "as published", requires: str = "") -> LockedPackage:
        files = {f"{name}.py": f"VERSION = {words!r}\n"}
        wheel = make_wheel(self.wheels, name, "1.0", files=files, requires=requires.split())
        return LockedPackage(f"{name}==1.0", (hashlib.sha256(wheel.read_bytes()).hexdigest(),))

    def build(self, *lines: str, locked: list[LockedPackage]) -> str:
        base, problem = probe_interpreter(sys.executable, self._variables, self._run)
        assert base is not None, problem
        recipe = Recipe(base, lines, (), (), None, (), locked)

        def installer() -> Installer:
            found = find_installer(base, [], self._variables)
            assert found is not None
            return found

        return provide(
            recipe,
            installer,
            lambda _built: None,
            cache=self.cache,
            environment=self._variables,
            folder=self._run,
            report=self.log.append,
        ).python


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_lock_s_files_are_installed_and_nothing_that_they_ask_for_besides(host: Host) -> None:
    host.publish("torch")
    tiny = host.publish("tinypack", requires="unlisted")
    host.publish("unlisted")
    python = host.build("torch==1.0", "tinypack==1.0", locked=[tiny])
    assert output_of(python, "import tinypack; print(tinypack.VERSION)") == "as published"
    found = output_of(python, "import importlib.util as u; print(u.find_spec('unlisted'))")
    assert found == "None"


def test_a_file_that_was_exchanged_at_the_index_is_refused(host: Host) -> None:
    host.publish("torch")
    tiny = host.publish("tinypack")
    host.publish("tinypack", "exchanged")
    with pytest.raises(EnvironmentUnusableError, match=r"another digest.*tinypack==1\.0"):
        host.build("torch==1.0", "tinypack==1.0", locked=[tiny])
    assert not list(host.cache.glob("venvs/*/.complete"))


def test_a_pytorch_that_was_exchanged_since_the_first_time_is_refused(host: Host) -> None:
    host.publish("torch")
    tiny, other = host.publish("tinypack"), host.publish("otherpack")
    host.build("torch==1.0", "tinypack==1.0", locked=[tiny])
    (record,) = host.cache.glob("locks/torch-*.txt")
    assert "torch==1.0" in record.read_text()
    host.build("torch==1.0", "otherpack==1.0", locked=[other])
    assert any("by the digests in" in line for line in host.log)
    host.publish("torch", "exchanged")
    with pytest.raises(EnvironmentUnusableError, match="another digest"):
        host.build("torch==1.0", "tinypack==1.0", "otherpack==1.0", locked=[tiny, other])


def test_a_pytorch_with_a_digest_in_the_spec_is_checked_the_first_time_too(host: Host) -> None:
    torch, tiny = host.publish("torch", requires="unlisted"), host.publish("tinypack")
    line = f"{torch.requirement} {DIGEST}{torch.sha256[0]}"
    host.build(line, "tinypack==1.0", locked=[torch, tiny])
    host.publish("torch", "exchanged")
    other = host.publish("otherpack")
    with pytest.raises(EnvironmentUnusableError, match="another digest"):
        host.build(line, "otherpack==1.0", locked=[torch, other])
    assert not list(host.cache.glob("locks/torch-*.txt"))


@pytest.mark.parametrize(
    ("archive", "digest"),
    [
        ({"hash": f"sha256={'a' * 64}", "hashes": {"sha256": "a" * 64}}, "a" * 64),
        ({"hash": f"sha256={'b' * 64}"}, "b" * 64),
        ({"hash": "md5=1"}, None),
        ({}, None),
    ],
)
def test_the_digests_of_a_report_are_read_as_old_and_new_pips_write_them(
    tmp_path: Path, archive: dict[str, object], digest: str | None
) -> None:
    download = {"url": "file:///x", "archive_info": archive}
    item = {"metadata": {"name": "Torch", "version": "1.0+cpu"}, "download_info": download}
    (tmp_path / "report.json").write_text(json.dumps({"install": [item]}))
    expected = None if digest is None else [LockedPackage("torch==1.0+cpu", (digest,))]
    assert installed_packages(tmp_path / "report.json") == expected
