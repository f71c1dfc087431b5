"""A preparation that is killed is resumed by the next one, to the same shards byte for byte.

`TRAINMASTER_FAULT_ROUNDS` says how many kills, on as many megabytes; `TRAINMASTER_FAULT_SEED` when.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.host.tiny_training import wait_for
from support.session.tiers import at_length

from trainer_runtime.core.config import FilterConfig, RunConfig
from trainer_runtime.core.files.corpus import Source, fingerprint, list_files
from trainer_runtime.core.files.shard_journal import Journal, Place
from trainer_runtime.core.files.tokenizer_folder import read_tokenizer_folder
from trainer_runtime.host.prepare.shards import prepare

REPOSITORY = Path(__file__).parents[3]
ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "2"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
SEQ_LEN = 64


def texts(size: int) -> list[str]:
    """About `size` characters of words, in paragraphs of very different lengths."""
    drawn = random.Random(7)
    words = ["".join(drawn.choices("etaoinshrdlu", k=drawn.randint(1, 9))) for _ in range(3000)]
    made, held = [], 0
    while held < size:
        made.append(" ".join(drawn.choices(words, k=int(drawn.paretovariate(0.9)) % 20_000 + 5)))
        held += len(made[-1])
    return made


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tokenizers import ByteLevelBPETokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(texts(200_000), 600, special_tokens=["<end>"], show_progress=False)
    trained.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    return str(folder)


@dataclass(frozen=True, slots=True)
class Preparation:
    """Of one config, each in a cache of its own, as a process of the host."""

    folder: Path
    data: dict[str, Any]

    def config(self, cache: str) -> dict[str, Any]:
        return {"data": {**self.data, "cache_dir": str(self.folder / cache)}}

    def entry(self, cache: str) -> Path:
        return self.folder / cache / "data" / self.data["fingerprint"]

    def start(self, cache: str) -> subprocess.Popen[str]:
        config = self.folder / f"{cache}.json"
        config.write_text(json.dumps(self.config(cache)))
        return subprocess.Popen(
            [sys.executable, "-m", "trainer_runtime", "prepare", str(config)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finished(self, cache: str) -> tuple[dict[str, bytes], str]:
        """The entry's files, and what the preparation printed."""
        process = self.start(cache)
        printed = process.communicate(timeout=300)[0]
        assert process.returncode == 0, printed
        return {file.name: file.read_bytes() for file in self.entry(cache).iterdir()}, printed

    def killed_at(self, cache: str, size_bytes: int) -> tuple[str, bool]:
        """Killed when so many bytes of shards are written; what it printed, and whether its
        journal has a part of the source."""
        process = self.start(cache)
        building = self.entry(cache).with_name(f".building-{self.data['fingerprint']}")
        wait_for(process, lambda: _written(building) >= size_bytes or self.entry(cache).exists())
        process.kill()
        printed = process.communicate(timeout=60)[0]
        journal = building / "progress.json"
        kept = json.loads(journal.read_bytes()) if journal.exists() else {"done": True}
        return printed, not kept["done"]


def _written(folder: Path) -> int:
    try:
        return sum(file.stat().st_size for file in folder.glob("*.bin"))
    except FileNotFoundError:
        return 0


def preparation(
    folder: Path, tokenizer: str, size: int, data_format: str, *, dedup: str | None = None
) -> Preparation:
    filters = None if dedup is None else FilterConfig(dedup=dedup).to_dict()
    path = folder / f"source.{data_format}"
    if data_format == "jsonl":
        rows = [json.dumps({"text": text}) for text in texts(size)]
        rows[3] = "{"
        rows += rows[: len(rows) // 9] if dedup else []
        path.write_text("".join(f"{row}\n" for row in rows))
    else:
        path.write_text("\n".join(texts(size)))
    digest = "byte" if tokenizer == "byte" else read_tokenizer_folder(tokenizer).digest
    listed = Source("main", str(path), list_files(path), data_format)
    share = 0.01
    return Preparation(
        folder,
        {
            "sources": [{"name": "main", "path": str(path), "format": data_format}],
            "tokenizer": tokenizer,
            "tokenizer_digest": digest,
            "seq_len": SEQ_LEN,
            "fingerprint": fingerprint([listed], digest, SEQ_LEN, bad_rows=share, filters=filters),
            "bad_rows": share,
            "filters": filters,
        },
    )


@pytest.mark.parametrize(
    ("data_format", "dedup"), [("jsonl", None), *at_length(("jsonl", "exact")), ("text", None)]
)
def test_a_killed_preparation_is_resumed_to_equal_shards(
    tmp_path: Path, tokenizer: str, data_format: str, dedup: str | None
) -> None:
    print(f"TRAINMASTER_FAULT_SEED={SEED}")
    # Text by the byte tokenizer is cut by the host itself, and much faster.
    by, size = (tokenizer, ROUNDS << 20) if data_format == "jsonl" else ("byte", 1 << 25)
    prepared = preparation(tmp_path, by, size, data_format, dedup=dedup)
    expected, _ = prepared.finished("straight")
    total = sum(len(content) for name, content in expected.items() if name.endswith(".bin"))
    printed, kept = "", False
    drawn = random.Random(SEED)
    for moment in sorted(drawn.uniform(0, 1) for _ in range(ROUNDS)):
        more, is_kept = prepared.killed_at("killed", int(moment * total))
        printed, kept = printed + more, kept or is_kept
    found, last = prepared.finished("killed")
    assert found == expected
    assert ("resumed after" in printed + last) == kept
    assert [file.name for file in prepared.entry("killed").parent.iterdir() if file.is_dir()] == [
        prepared.data["fingerprint"]
    ]


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_kill_around_the_removal_of_the_held_out_part_changes_nothing(
    tmp_path: Path, tokenizer: str, at: str
) -> None:
    prepared = preparation(tmp_path, tokenizer, 100_000, "jsonl")
    expected, _ = prepared.finished("straight")
    building = prepared.entry("killed").with_name(f".building-{prepared.data['fingerprint']}")
    building.mkdir(parents=True)
    train, val = expected["train-main.bin"], expected["val-main.bin"]
    (building / "train-main.bin").write_bytes(train + val if at == "before" else train)
    (building / "val-main.bin").write_bytes(val)
    described = json.loads(expected["meta.json"])["sources"][0]
    with Journal(building, print) as journal:
        journal.finish("main", described)
    found, _ = prepared.finished("killed")
    assert found == expected


def test_a_preparation_waits_for_one_that_has_outlived_its_starter(
    tmp_path: Path, tokenizer: str
) -> None:
    prepared = preparation(tmp_path, tokenizer, 100_000, "jsonl")
    building = prepared.entry("next").with_name(f".building-{prepared.data['fingerprint']}")
    building.mkdir(parents=True)
    with Journal(building, print):
        process = prepared.start("next")
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any("waiting for the end of an earlier preparation" in line for line in lines)
        assert _written(building) == 0
    assert process.communicate(timeout=60) and process.returncode == 0


@pytest.mark.parametrize(
    "journal", [b"{torn", b'{"v": 0, "source": "main", "place": {"pieces": 9, "tokens": 9}}', None]
)
def test_a_journal_that_says_nothing_of_the_shards_starts_them_again(
    tmp_path: Path, journal: bytes | None
) -> None:
    prepared = preparation(tmp_path, "byte", 50_000, "text")
    building = prepared.entry("killed").with_name(f".building-{prepared.data['fingerprint']}")
    building.mkdir(parents=True)
    (building / "train-main.bin").write_bytes(b"half")
    if journal is None:  # it records more than the disk holds
        with Journal(building, print) as kept:
            kept.keep("main", Place(tokens=40_000))
    else:
        (building / "progress.json").write_bytes(journal)
    straight, killed = (
        prepare(RunConfig.parse(prepared.config(cache)), print) for cache in ("straight", "killed")
    )
    for name in ("train-main.bin", "val-main.bin", "meta.json"):
        assert (killed / name).read_bytes() == (straight / name).read_bytes()
