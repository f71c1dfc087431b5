"""Fixtures: a small spec, a host and a corpus that it can be planned for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.alerts.webhook_receiver import Receiver, receiving
from support.backends.kept_runtimes import kept_runtimes
from support.backends.ssh_hosts import Sshd
from support.runs.operator import Operator
from support.runs.running_run import CommandLine

from trainer_runtime.core.files.corpus import Source, list_files
from trainmaster.plan import CorpusFacts, HostFacts, SourceFacts, TorchFacts
from trainmaster.plan.spec import TrainingSpec, load_spec
from trainmaster.sync.workspace import Workspace

SMALL_SPEC = """\
name: small
framework: nanogpt
model: {n_layer: 4, n_head: 4, d_model: 128}
data: {sources: [{name: main, path: ./corpus}]}
steps: 200
"""

SpecMaker = Callable[..., TrainingSpec]


@pytest.fixture
def small_spec() -> str:
    """A whole spec in the fewest words."""
    return SMALL_SPEC


@pytest.fixture
def make_spec() -> SpecMaker:
    """The small spec, trained as GPT-2 is, loaded, with --set arguments applied."""

    def make(*sets: str) -> TrainingSpec:
        return load_spec(f"{SMALL_SPEC}optimizer: {{name: adamw}}\n", sets)

    return make


@pytest.fixture
def cpu_host() -> HostFacts:
    """Two cores with bf16, 6 GiB of free memory, 20 GiB of free disk."""
    return HostFacts(
        hostname="box",
        root="/srv/trainmaster",
        cores=2.0,
        memory_total_gib=8.0,
        memory_available_gib=6.0,
        disk_free_gib=20.0,
        torch=TorchFacts(version="2.13.0+cpu"),
        bf16_cpu=True,
        measured_at=1_700_000_000.0,
    )


@pytest.fixture
def text_corpus(tmp_path: Path) -> CorpusFacts:
    """Three real files of text, some 120 kB."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(3):
        (folder / f"part-{number}.txt").write_text("A line of text to learn from.\n" * 1365)
    source = Source("main", str(folder), list_files(folder))
    facts = CorpusFacts.of([source], tokenizer="byte", seq_len=128)
    return facts.model_copy(update={"fingerprint": "0123456789abcdef"})


@pytest.fixture
def one_source() -> Callable[..., CorpusFacts]:
    """The facts of one source at /corpus, a megabyte by default."""

    def make(**fields: Any) -> CorpusFacts:
        values = {"files": 1, "size_bytes": 10**6, "tokens": 10**6 + 1, **fields}
        source = SourceFacts(name="main", path="/corpus", **values)
        return CorpusFacts(sources=(source,), fingerprint="0123456789abcdef")

    return make


@pytest.fixture
def plannable(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> Callable[..., tuple[TrainingSpec, HostFacts, CorpusFacts]]:
    """The arguments of `plan` for the small spec with --set arguments applied."""
    return lambda *sets: (make_spec(*sets), cpu_host, text_corpus)


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with Sshd() as box:
        yield box


@pytest.fixture
def remote(home: Path, sshd: Sshd, workspace: Workspace) -> CommandLine:
    """`trainmaster` in a home that knows the host, which has the runtime from an earlier test."""
    kept_runtimes.lend(sshd.home / "trainmaster")
    workspace.control.put_host(sshd.record("box"), time.time())
    return CommandLine(home, "box", sshd.home / "trainmaster")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def operator(workspace: Workspace, tmp_path: Path) -> Operator:
    return Operator(workspace, tmp_path)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a server with a home of its own, whose working folder is the test's."""
    monkeypatch.chdir(tmp_path)
    kept_runtimes.lend(tmp_path / "home/debug")
    return {"TRAINMASTER_HOME": str(tmp_path / "home")}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text("A line of text to learn from.\n" * 400)
    return tmp_path / "corpus"
