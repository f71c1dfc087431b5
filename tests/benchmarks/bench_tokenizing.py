"""Shards cut from text beside the tokenizer's own bulk encoding of text in memory, per core.

python tests/benchmarks/bench_tokenizing.py [--turns 5] [--megabytes 4] [--full]

The text is Python's own library; the tokenizers are trained on a part of it. Ours reads the files
and writes the shards, and opens the tokenizer again every time.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import tiktoken
from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import at_most, times_as_fast
from support.benchmarks.turns import peak_memory_mib, rate
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from trainer_runtime.core.config import DataConfig, SourceConfig
from trainer_runtime.train.data.bulk_encoding import FastEncode, fast_encode
from trainer_runtime.train.data.documents import pieces
from trainer_runtime.train.data.prepare_shards import cut
from trainer_runtime.train.data.tokenizers import open_tokenizer

_VOCABULARY = 32_000
_TRAINED_ON_BYTES = 4_000_000
_MOST_GIB = 2.0


def measure(bench: Benchmark) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        text = write_text(folder / "text", int(bench.sizes["megabytes"] * 1e6))
        data = data_of(text)
        files = {"main": [str(file) for file in sorted(text.iterdir())]}
        megabytes = sum(Path(file).stat().st_size for file in files["main"]) / 1e6
        texts = [piece for piece, _, _ in pieces(data.sources[0], files["main"])]
        of_bytes = trained(
            folder / "bytes", texts, pre_tokenizers.ByteLevel(add_prefix_space=False)
        )
        of_words = trained(folder / "words", texts, pre_tokenizers.Metaspace())

        def preparing(tokenizer: Path) -> Callable[[], float]:
            data_of_it = DataConfig(sources=data.sources, tokenizer=str(tokenizer), seq_len=128)
            return mb_s(lambda: quietly(lambda: cut(data_of_it, folder, files)), megabytes)

        fast = encoder(of_bytes)
        bench.compare(
            "encoding by a byte-level BPE",
            "MB/s",
            ours=mb_s(lambda: fast(texts), megabytes),
            peer=("tiktoken", mb_s(lambda: by_tiktoken(fast.encoding, texts), megabytes)),
            goal=times_as_fast(0.8),
        )
        bench.compare(
            "shards by a byte-level BPE",
            "MB/s",
            ours=preparing(of_bytes),
            peer=("tiktoken", mb_s(lambda: by_tiktoken(fast.encoding, texts), megabytes)),
            goal=times_as_fast(0.8),
            note=f"{megabytes:.3g} MB; opening the tokenizer included",
        )
        slow = Tokenizer.from_file(str(of_words / "tokenizer.json"))
        bench.compare(
            "shards by another tokenizer",
            "MB/s",
            ours=preparing(of_words),
            peer=("tokenizers", mb_s(lambda: by_tokenizers(slow, texts), megabytes)),
            goal=times_as_fast(0.8),
            note="a BPE of words, which tiktoken doesn't take",
        )
        bench.report(
            "memory of a preparation",
            "GiB",
            ours=[peak_gib(data, of_bytes, folder, files)],
            goal=at_most(_MOST_GIB),
        )


def quietly(work: Callable[[], object]) -> None:
    with redirect_stdout(StringIO()):
        work()


def mb_s(work: Callable[[], object], megabytes: float) -> Callable[[], float]:
    """MB per second of processor time, all threads together: of one core."""
    return rate(work, megabytes, of_processor=True)


def write_text(folder: Path, size_bytes: int) -> Path:
    """Files of Python's library, again from the first where they don't suffice."""
    folder.mkdir()
    left, number = size_bytes, 0
    while left > 0:
        for content in library():
            (folder / f"{number:06}.txt").write_text(content[:left])
            left, number = left - len(content.encode()), number + 1
            if left <= 0:
                break
    return folder


def library() -> Iterator[str]:
    for file in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        content = file.read_text(errors="ignore")
        if content:
            yield content


def data_of(text: Path) -> DataConfig:
    return DataConfig(sources=(SourceConfig("main", path=str(text)),), seq_len=128)


def trained(folder: Path, texts: Sequence[str], splitter: Any) -> Path:
    """A BPE's folder."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = splitter
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=["<|endoftext|>", "<unk>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(up_to(texts, _TRAINED_ON_BYTES), trainer)
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    return folder


def up_to(texts: Sequence[str], size: int) -> Iterator[str]:
    for text in texts:
        if size <= 0:
            return
        size -= len(text)
        yield text


def encoder(folder: Path) -> FastEncode:
    fast = fast_encode(folder, open_tokenizer(str(folder)).encode)
    if fast is None:
        raise RuntimeError("tiktoken does not take the tokenizer")
    return fast


def by_tiktoken(encoding: tiktoken.Encoding, texts: list[str]) -> list[list[int]]:
    return encoding.encode_ordinary_batch(texts)


def by_tokenizers(tokenizer: Tokenizer, texts: list[str]) -> list[Any]:
    return tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def peak_gib(data: DataConfig, tokenizer: Path, folder: Path, files: dict[str, list[str]]) -> float:
    """Of the program that the preparation starts."""
    request = folder / "request.json"
    sources = [{"name": "main", "path": data.sources[0].path}]
    described = {"sources": sources, "tokenizer": str(tokenizer), "seq_len": 128}
    request.write_text(json.dumps({"data": described, "folder": str(folder), "files": files}))
    module = "trainer_runtime.train.data.prepare_shards"
    return peak_memory_mib([sys.executable, "-m", module, str(request)]) / 1024


if __name__ == "__main__":
    run_benchmark(measure, megabytes=Size(4, full=20))
