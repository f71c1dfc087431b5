"""Files of others that a reader may never reach the end of, or that no reader should open."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path

Maker = Callable[[Path, random.Random], None]
_SPARSE_BYTES = 2 << 40
_DENSE_BYTES = 24 << 20


def _sparse(path: Path, _: random.Random) -> None:
    path.touch()
    os.truncate(path, _SPARSE_BYTES)


def _text_before_a_hole(path: Path, chance: random.Random) -> None:
    path.write_bytes(_lines(chance, 1 << 16))
    os.truncate(path, chance.randrange(1 << 36, _SPARSE_BYTES))


def _text_behind_a_hole(path: Path, chance: random.Random) -> None:
    with path.open("wb") as file:
        file.seek(chance.randrange(1 << 36, _SPARSE_BYTES))
        file.write(_lines(chance, 1 << 16))


def _text_among_holes(path: Path, chance: random.Random) -> None:
    with path.open("wb") as file:
        for _ in range(8):
            file.seek(chance.randrange(1 << 20, 1 << 34), os.SEEK_CUR)
            file.write(_lines(chance, 1 << 12))


def _one_line(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.choice((b"a", b" ", b"\xe2\x80\x8b", b"1.5 ")) * (_DENSE_BYTES // 3))


def _one_bar(path: Path, _: random.Random) -> None:
    path.write_bytes(b"\r 50%|##  | 1/2 [00:01<00:01, loss=2.5]" * (_DENSE_BYTES // 40))


def _empty_lines(path: Path, _: random.Random) -> None:
    path.write_bytes(b"\n" * (_DENSE_BYTES // 4))


def _long_lines(path: Path, chance: random.Random) -> None:
    line = b"x" * chance.randrange(60_000, 300_000) + b"\n"
    path.write_bytes(line * (_DENSE_BYTES // len(line)))


def _metrics(path: Path, chance: random.Random) -> None:
    path.write_bytes(_lines(chance, _DENSE_BYTES))


def _numbers_of_no_form(path: Path, chance: random.Random) -> None:
    words = [b"%x" % chance.getrandbits(chance.randrange(1, 90)) for _ in range(20_000)]
    lines = [b" ".join(chance.sample(words, chance.randrange(1, 30))) for _ in range(5_000)]
    path.write_bytes(b"\n".join(lines * 8))


def _bytes(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(1 << 20) * 8)


def _pipe(path: Path, _: random.Random) -> None:
    os.mkfifo(path)


def _link_to_itself(path: Path, _: random.Random) -> None:
    path.symlink_to(path)


def _folder(path: Path, _: random.Random) -> None:
    path.mkdir()


def _of_the_kernel(path: Path, chance: random.Random) -> None:
    path.symlink_to(chance.choice(("/dev/zero", "/dev/full", "/proc/kcore", "/proc/self/pagemap")))


ENDLESS: Mapping[str, Maker] = {
    made.__name__.removeprefix("_"): made
    for made in (
        *(_sparse, _text_before_a_hole, _text_behind_a_hole, _text_among_holes),
        *(_one_line, _one_bar, _empty_lines, _long_lines, _metrics, _numbers_of_no_form, _bytes),
        *(_pipe, _link_to_itself, _folder, _of_the_kernel),
    )
}


def _lines(chance: random.Random, size: int) -> bytes:
    lines = [b"step %d: loss %.4f\n" % (step, chance.random()) for step in range(2_000)]
    whole = b"".join(lines)
    return whole * max(1, size // len(whole))
