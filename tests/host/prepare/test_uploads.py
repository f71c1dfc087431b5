"""Data that the client sends: the preparation waits for it, reports so, and continues."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import run_async, wait_until

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.corpus import Source, fingerprint, list_files, listing_digest
from trainer_runtime.host.prepare.shards import DataUnusableError, is_whole, prepare
from trainmaster.backends.hosts import LocalHost
from trainmaster.backends.hosts.tree_files import TreeFile, file_at, files_of_folder
from trainmaster.backends.hosts.trees import put_tree

SEQ_LEN = 16
_PREPARE = """
import json, sys
from trainer_runtime.core.config import RunConfig
from trainer_runtime.host.prepare.shards import prepare
prepare(RunConfig.parse(json.load(open(sys.argv[1]))), lambda line: print(line, flush=True))
"""


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "operator" / "corpus"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"x" * 3000)
    (folder / "deep" / "b.txt").write_bytes("ü".encode() * 2000)
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")  # as a preparation is started
    return folder


def config_of(
    tmp_path: Path, corpus: Path, *, prepared: str = "box", sent: bool = True
) -> dict[str, Any]:
    source = Source("main", str(corpus), list_files(corpus))
    mark = fingerprint([source], "byte", SEQ_LEN)
    cache = tmp_path / ("box" if sent else "reference")
    data = {
        "sources": [{"name": "main", "path": str(corpus), "format": "text", "weight": 1.0}],
        "tokenizer": "byte",
        "seq_len": SEQ_LEN,
        "fingerprint": mark,
        "cache_dir": str(cache),
        "prepare": prepared,
    }
    if sent:
        data["sources"][0]["path"] = f"{cache}/sources/{mark}/main"  # type: ignore[index]
        data["upload"] = {
            "sources": {"main": str(corpus)},
            "size_bytes": source.size_bytes,
            "listing": listing_digest([source]),
        }
    return {"data": data, "attempt": {"number": 2}}


def files_of(corpus: Path) -> list[TreeFile]:
    found = []
    for document in list_files(corpus):
        path = corpus / document.name
        found.append(file_at(path, f"main/{document.name}", path.stat()))
    return found


def send(config: dict[str, Any], files: list[TreeFile], **options: Any) -> None:
    data = config["data"]
    folder = f"{data['cache_dir']}/{'data' if options.get('whole') else 'sources'}"
    host = LocalHost("box", Path("/"))
    run_async(lambda: put_tree(host, files, f"{folder}/{data['fingerprint']}", **options))


class Preparing:
    """A preparation in a thread, with what it reports."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.reports: list[str] = []
        self.failed: DataUnusableError | None = None
        self._config = config
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            prepare(RunConfig.parse(self._config), self.reports.append)
        except DataUnusableError as error:
            self.failed = error

    def end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_shards_of_sources_that_were_sent_are_those_of_local_ones(
    tmp_path: Path, corpus: Path
) -> None:
    config = config_of(tmp_path, corpus)
    preparing = Preparing(config)
    wait_until(lambda: preparing.reports, "word that it waits")
    assert preparing.reports[0] == "data: waiting for the upload of main: 0.0 of 0.0 MiB"
    send(config, files_of(corpus), mark=True)
    preparing.end()
    here = prepare(RunConfig.parse(config_of(tmp_path, corpus, sent=False)), print)
    there = Path(config["data"]["cache_dir"], "data", config["data"]["fingerprint"])
    assert shards(there) == shards(here)


def test_the_listing_counts_where_the_box_keeps_no_nanoseconds(
    tmp_path: Path, corpus: Path
) -> None:
    config = config_of(tmp_path, corpus)
    send(config, files_of(corpus), mark=True)
    for path in Path(config["data"]["sources"][0]["path"]).rglob("*.txt"):
        path.touch()
    preparing = Preparing(config)
    preparing.end()
    assert preparing.failed is None


def test_files_without_a_marker_are_not_taken(tmp_path: Path, corpus: Path) -> None:
    config = config_of(tmp_path, corpus)
    send(config, files_of(corpus))
    preparing = Preparing(config)
    wait_until(lambda: preparing.reports, "word that it waits")
    send(config, files_of(corpus), mark=True)
    preparing.end()
    assert preparing.failed is None


def test_shards_that_were_cut_over_there_are_waited_for(tmp_path: Path, corpus: Path) -> None:
    here = prepare(RunConfig.parse(config_of(tmp_path, corpus, sent=False)), print)
    config = config_of(tmp_path, corpus, prepared="here")
    entry = Path(config["data"]["cache_dir"], "data", config["data"]["fingerprint"])
    shutil.copytree(here, entry)
    (entry / "val-main.bin").unlink()  # damaged: it has to go, or the sender would keep it
    preparing = Preparing(config)
    wait_until(lambda: not entry.exists(), "the damaged entry's end")
    wait_until(lambda: preparing.reports, "word that it waits")
    send(config, files_of_folder(here), whole=True)
    preparing.end()
    assert is_whole(entry) and shards(entry) == shards(here)


def test_word_that_nothing_comes_ends_the_attempt_that_it_is_for(
    tmp_path: Path, corpus: Path
) -> None:
    config = config_of(tmp_path, corpus)
    refusal = Path("upload_refused.json")
    refusal.write_text(json.dumps({"attempt": 1, "message": "that was then"}))
    preparing = Preparing(config)
    wait_until(lambda: preparing.reports, "word that it waits")
    refusal.write_text(json.dumps({"attempt": 2, "message": "the files changed since the plan"}))
    preparing.end()
    assert "changed since the plan" in str(preparing.failed)


def test_a_preparation_that_waits_ends_by_sigterm_and_leaves_nothing_behind(
    tmp_path: Path, corpus: Path
) -> None:
    config = config_of(tmp_path, corpus)
    Path("config.json").write_text(json.dumps(config))
    command = [sys.executable, "-c", _PREPARE, "config.json"]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert waiting.stdout is not None and "waiting" in waiting.stdout.readline()
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(60) == -signal.SIGTERM
    send(config, files_of(corpus), mark=True)
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 0


def test_whichever_comes_first_serves_every_run_that_waits(tmp_path: Path, corpus: Path) -> None:
    here = prepare(RunConfig.parse(config_of(tmp_path, corpus, sent=False)), print)
    waiting = [Preparing(config_of(tmp_path, corpus, prepared=how)) for how in ("here", "box")]
    for preparing in waiting:
        wait_until(lambda preparing=preparing: preparing.reports, "word that it waits")
    config = config_of(tmp_path, corpus)
    send(config, files_of(corpus), mark=True)
    for preparing in waiting:
        preparing.end()
        assert preparing.failed is None
    entry = Path(config["data"]["cache_dir"], "data", config["data"]["fingerprint"])
    assert shards(entry) == shards(here)
