"""Sessions of the real script, with a trainer that only says that it trains."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.host.kaggle_kernels import RUN_SLUG, TRAINER, Copy, Kernel
from support.host.tiny_training import prepared_config
from support.runs.running_run import kill, processes_of

from trainer_runtime.core.protocol.masking import Mask
from trainer_runtime.core.protocol.states import PlacementState

pytestmark = [pytest.mark.slow, pytest.mark.engine]

SECRET = 'a"secret\nof two lines, 4f7Q'
SAYS_IT = 'print(os.environ["TOKEN"], flush=True)\n'
WAITS = """\
while step == 15 and not Path(f"go-{attempt}").exists() and not end_signals:
    time.sleep(0.02)
"""
STUBBORN = """\
while step == 15 and attempt == 1:
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """A run's configuration, and its data in a cache."""
    folder = tmp_path_factory.mktemp("prepared")
    config = prepared_config(folder, "nanogpt", b"to be or not to be, " * 100)
    config |= {"recovery": {"max_restarts": 3}, "derived": {"sequences_per_step": 8}}
    return {**config, "does": "pass", "steps": 20}


def secrets_of(folder: Path) -> Path:
    """A data set of a run's secrets."""
    folder.mkdir()
    given = {"v": 1, "generation": 1, "values": {"TOKEN": SECRET}}
    (folder / "secrets.json").write_text(json.dumps(given))
    return folder


def shards_of(config: Mapping[str, Any], folder: Path) -> Path:
    """A data set of what the config's cache holds."""
    shutil.copytree(Path(config["data"]["cache_dir"], "data"), folder / "data")
    return folder


@pytest.fixture
def kernel(prepared: Mapping[str, Any], tmp_path: Path) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path, prepared, TRAINER)
    yield kernel
    kernel.close()


@pytest.mark.smoke
def test_kills_are_survived_inputs_are_used_and_no_secret_is_shown(
    kernel: Kernel, prepared: Mapping[str, Any], tmp_path: Path
) -> None:
    data = {**prepared["data"], "cache_dir": str(tmp_path / "cache"), "sources": []}
    kernel.config = {**prepared, "data": data, "does": SAYS_IT + WAITS, "secrets": ["TOKEN"]}
    session = kernel.push(cache=("shards",), secrets="given")
    session.mount(secrets_of(tmp_path / "given"), "given")
    session.mount(shards_of(prepared, tmp_path / "shards"), "datasets/somebody/shards")

    session.start().wait_for_step(1, 15)
    secrets = session.run.secrets.resolve()
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    assert not secrets.is_relative_to(session.working)
    kill(processes_of(session.run)["trainer"])
    session.wait_for_step(2, 15)
    kill(processes_of(session.run)["supervisor"])
    session.wait_for(lambda: "is started again" in session.log)
    (session.run.root / "go-2").touch()
    assert session.end() == 0

    copy, mask = Copy().take(session.log), Mask([SECRET])
    assert [one.reason for one in copy.record.attempts] == ["killed", "completed"]
    for name, content in copy.files.items():
        assert content == mask.apply((session.run.root / name).read_bytes(), final=True), name
    assert b"of two lines" in session.run.attempt(2).train_log.read_bytes()
    assert b"of two lines" not in b"".join([session.log.encode(), *copy.files.values()])
    assert not secrets.exists()
    assert not [path for path in session.working.rglob("*") if "secrets" in path.name]
    assert not (session.run.root / "trainer_runtime").exists()
    assert session.words[-1].endswith("Session 1 is over: completed")


def test_a_trainer_that_does_not_end_is_killed_so_that_the_output_is_kept(
    kernel: Kernel, prepared: Mapping[str, Any]
) -> None:
    kernel.config = {**prepared, "does": STUBBORN}
    session = kernel.push(margin_s=40.0).start()
    session.wait_for_step(1, 15)
    session.interrupt()
    assert session.end() == 0
    copy = Copy().take(session.log)
    record = copy.record
    assert (record.state, record.reason) == (PlacementState.RECOVERING, "session_over")
    assert (record.attempts[0].reason, record.attempts[0].signal) == ("session_over", 9)

    again = kernel.push(previous=RUN_SLUG, journal_bytes=len(copy.journal))
    again.mount(session.working, RUN_SLUG)
    for path in again.inputs.rglob("*"):  # as Kaggle mounts it
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert again.start().end() == 0
    record = copy.take(again.log).record
    assert record.state is PlacementState.COMPLETED
    assert [one.candidates for one in record.attempts] == [[], [10]]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda script: script.replace('PAYLOAD = """\n', 'PAYLOAD = """\n0'), "is damaged"),
        (lambda script: script, f"{RUN_SLUG} is not mounted below"),
    ],
    ids=["damaged", "not mounted"],  # RUN_SLUG is another one in each process
)
def test_a_session_that_can_t_begin_says_why_and_ends_with_an_error(
    kernel: Kernel, damage: Any, words: str
) -> None:
    session = kernel.push(previous=RUN_SLUG)
    script = session.working.parent / "script.py"
    script.write_text(damage(script.read_text()))
    assert session.start().end() == 1
    assert words in session.words[-1]
