"""Archives and pickles made to keep or fill whatever reads them."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.attack.bounded import bounded
from support.attack.cases import attack_count, attack_random
from support.attack.zip_files import PLAIN_PICKLE, Entry, overlapping, zip_bytes

from trainer_runtime.core.files.model_folder import read_model_folder
from trainer_runtime.core.files.torch_archive import ArchiveError, check_archive
from trainer_runtime.host.script.whole import TornError, judge
from trainer_runtime.train.foreign.archives import read_archive, tensors_within
from trainer_runtime.train.foreign.inspect import inspect_output
from trainer_runtime.train.foreign.records import UnusableError

pytestmark = pytest.mark.attack

RECORD = Entry(b"archive/data/0", bytes(4096))
ENTRIES = [
    Entry(b"archive/data.pkl", PLAIN_PICKLE),
    Entry(b"archive/version", b"3\n"),
    RECORD,
]


def refused(data: bytes, folder: Path) -> str:
    """Why neither the monitor nor PyTorch's reader nor the planner takes the archive."""
    path = folder / "ckpt.pt"
    path.write_bytes(data)
    with bounded():
        with pytest.raises(ArchiveError) as why:
            check_archive(path)
        with pytest.raises(UnusableError):
            read_archive(path)
        with pytest.raises(TornError):
            judge(path)
        (folder / "model_config.yaml").write_text("n_layer: 1\n")
        (folder / "lit_model.pth").write_bytes(data)
        read_model_folder(str(folder))
        checkpoints = inspect_output(str(folder))
        json.dumps(checkpoints)
    return str(why.value)


def test_records_that_are_the_same_bytes_are_not_read_again_and_again(tmp_path: Path) -> None:
    data = overlapping(20_000, 8 << 20)
    assert "twice" in refused(data, tmp_path)


LIES: dict[str, Callable[[], bytes]] = {
    "overlap under other names": lambda: zip_bytes(
        [
            replace(RECORD, data=bytes(64) + RECORD.data, local_name=RECORD.name),
            *[
                Entry(b"archive/data/%d" % number, RECORD.data, offset=0, is_shadow=True)
                for number in range(1, 50)
            ],
        ]
    ),
    "record within a record": lambda: zip_bytes(
        [
            replace(RECORD, data=zip_bytes([Entry(b"in", b"data")])),
            Entry(b"in", b"data", offset=30 + len(RECORD.name), is_shadow=True),
        ]
    ),
    "packed bomb": lambda: zip_bytes([replace(RECORD, method=8, unpacked=1 << 31)]),
    "encrypted": lambda: zip_bytes([replace(RECORD, flags=1)]),
    "sizes that differ": lambda: zip_bytes([replace(RECORD, unpacked=4095)]),
    "longer than the file": lambda: zip_bytes([replace(RECORD, stored=1 << 30, unpacked=1 << 30)]),
    "begins behind the file": lambda: zip_bytes([replace(RECORD, offset=1 << 31)]),
    "begins before the file": lambda: zip_bytes([replace(RECORD, offset=0xFFFFFFF0)]),
    "wide sizes without their field": lambda: zip_bytes(
        [replace(RECORD, stored=0xFFFFFFFF, unpacked=0xFFFFFFFF)]
    ),
    "wide sizes beyond a file": lambda: zip_bytes(
        [
            replace(
                RECORD,
                stored=0xFFFFFFFF,
                unpacked=0xFFFFFFFF,
                offset=0xFFFFFFFF,
                extra=struct.pack("<HH3Q", 1, 24, 2**64 - 1, 2**64 - 1, 2**64 - 1),
            )
        ]
    ),
    "a wide field that is cut off": lambda: zip_bytes(
        [replace(RECORD, stored=0xFFFFFFFF, unpacked=0xFFFFFFFF, extra=b"\x01\x00\xff\xff")]
    ),
    "two of a name": lambda: zip_bytes([RECORD, RECORD]),
    "another name before the data": lambda: zip_bytes([replace(RECORD, local_name=b"other")]),
    "more records than there are": lambda: zip_bytes([RECORD], count=2),
    "fewer records than there are": lambda: zip_bytes([RECORD, Entry(b"b", b"")], count=1),
    "no records counted": lambda: zip_bytes([RECORD], count=0),
    "a list of other length": lambda: zip_bytes([RECORD], directory_bytes=10),
    "a list of 4 GiB": lambda: zip_bytes([RECORD], directory_bytes=0xFFFFFFF0),
    "a list elsewhere": lambda: zip_bytes([RECORD], directory_at=0xFFFFFFF0),
    "an end within a comment": lambda: zip_bytes([RECORD], comment=zip_bytes([RECORD])),
    "nested": lambda: zip_bytes([replace(RECORD, data=zip_bytes([RECORD]), crc=1)]),
    "damaged": lambda: zip_bytes([replace(RECORD, crc=1)]),
    "half": lambda: zip_bytes(ENTRIES)[: len(zip_bytes(ENTRIES)) // 2],
    "only its begin": lambda: b"PK",
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("lie", LIES)
def test_an_archive_that_pytorch_does_not_write_is_refused(lie: str, tmp_path: Path) -> None:
    assert refused(LIES[lie](), tmp_path)


@pytest.mark.parametrize(
    "name", [b"../../out", b"/etc/passwd", b"\xff\xfe", b"a\0b", b"\x1b[31m", b"x" * 60_000]
)
def test_names_of_records_lead_nowhere(name: bytes, tmp_path: Path) -> None:
    path = tmp_path / "in/ckpt.pt"
    path.parent.mkdir()
    path.write_bytes(zip_bytes([*ENTRIES, Entry(name, b"data")]))
    with bounded():
        check_archive(path)
        with suppress(UnusableError):
            read_archive(path)
        json.dumps(inspect_output(str(path.parent)))
    assert os.listdir(tmp_path) == ["in"]


def test_what_pytorch_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    for content in (
        {},
        {f"w{number}": torch.full((3,), number) for number in range(65_536)},
        {"w": torch.arange(7.0), "tied": [torch.zeros(2, 2).t()]},
    ):
        torch.save(content, path)
        check_archive(path)
    path.write_bytes(zip_bytes(ENTRIES))
    check_archive(path)


@pytest.mark.long
def test_more_than_a_million_records_are_answered_soon(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    one = zip_bytes([Entry(b"a")])
    listed = one[31:78] * 1_100_000
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(listed), 31, 0)
    path.write_bytes(one[:31] + listed + end)
    with bounded(), pytest.raises(ArchiveError):
        check_archive(path)


def test_a_list_of_a_tebibyte_is_not_read(tmp_path: Path) -> None:
    path, length = tmp_path / "ckpt.pt", 1 << 40
    wide = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, length, 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, length, 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1, 0)
    with path.open("wb") as file:
        file.write(b"PK")
        file.seek(length)
        file.write(wide + locator + end)
    with bounded(), pytest.raises(ArchiveError, match="longer list"):
        check_archive(path)


def test_mutated_archives_end_with_an_answer(tmp_path: Path) -> None:
    numbers, path = attack_random("archive shapes"), tmp_path / "ckpt.pt"
    torch.save({"w": torch.ones(64)}, path)
    whole = path.read_bytes()
    with bounded():
        for _ in range(attack_count(150)):
            path.write_bytes(_mutated(whole, numbers))
            with suppress(UnusableError):
                read_archive(path)
            with suppress(TornError):
                judge(path)
            json.dumps(inspect_output(str(tmp_path)))


def _mutated(data: bytes, numbers: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(numbers.randrange(1, 4)):
        at = numbers.randrange(len(changed))
        match numbers.randrange(4):
            case 0:
                changed[at] ^= 1 << numbers.randrange(8)
            case 1:
                changed[at : at + 4] = numbers.choice([b"\xff" * 4, bytes(4), b"PK\x01\x02"])
            case 2:
                del changed[at : at + numbers.randrange(1, 64)]
            case _:
                changed[at:at] = changed[at : at + numbers.randrange(1, 256)]
        changed = changed or bytearray(b"P")
    return bytes(changed)


# Of pickles within whole archives.


def test_a_container_that_is_named_at_sixty_levels_is_read_once(tmp_path: Path) -> None:
    content: Any = [torch.ones(2)]
    for _ in range(60):
        content = [content, content]
    path = tmp_path / "ckpt.pt"
    torch.save(content, path)
    with bounded():
        assert len(list(tensors_within(read_archive(path)))) == 1
        assert judge(path).archives == ("ckpt.pt",)


@pytest.mark.parametrize(
    "content",
    [
        {"w": torch.ones(1).expand(1 << 40)},
        {"w": torch.ones(1).as_strided((1 << 20, 1 << 20), (0, 0))},
        {f"w{n}": torch.as_strided(torch.ones(4096), (4096,), (1,)) for n in range(1)}
        | {"views": [torch.ones(1 << 16)[None].expand(99, 1 << 16)]},
    ],
)
def test_tensors_that_are_many_times_their_file_are_refused(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(content, path)
    with bounded(), pytest.raises(UnusableError, match="repeats bytes"):
        read_archive(path)


def test_a_model_of_two_thousand_million_layers_is_refused(tmp_path: Path) -> None:
    sizes = {"n_layer": 2**31 - 1, "n_head": 1, "n_embd": 8, "block_size": 8, "vocab_size": 8}
    torch.save(
        {
            "model": {"w": torch.ones(2)},
            "optimizer": {},
            "model_args": {**sizes, "bias": False},
            "iter_num": 3,
            "config": {},
        },
        tmp_path / "ckpt.pt",
    )
    with bounded():
        found = inspect_output(str(tmp_path))["output"]["checkpoints"][0]
    assert "n_layer" in found["problem"]


def test_a_pickle_that_never_ends_ends_with_its_process(tmp_path: Path) -> None:
    """Only the kernel ends the hash of tuples within tuples: PyTorch's reader calls it."""
    levels = b"".join(b"q%ch%c\x86" % (level, level) for level in range(60))
    pickled = b"\x80\x02}" + b"K\x01\x85" + levels + b"K\x01s."
    path = tmp_path / "ckpt.pt"
    path.write_bytes(zip_bytes([replace(ENTRIES[0], data=pickled), *ENTRIES[1:]]))
    script = (
        "import sys; from pathlib import Path\n"
        "from trainer_runtime.train.foreign import process_limits\n"
        "process_limits._LEAST_CPU_S = 1\n"
        "from trainer_runtime.train.foreign.inspect import inspect_output\n"
        "inspect_output(sys.argv[1], limited=True)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], check=False, timeout=120, capture_output=True
    )
    assert ended.returncode == -24, ended.stderr.decode()
