"""Downloads of one file, from a local folder that stands in for a host's."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.attack.small_disk import free_bytes, small_disk
from support.session.tiers import at_length

from trainer_runtime.core.files.listing import ListedFile, list_files
from trainer_runtime.core.files.manifest import CHUNK_BYTES
from trainmaster.errors.errors import HostError, StorageError
from trainmaster.home.paths import Home
from trainmaster.store.reserve import margin_bytes
from trainmaster.transfers.copies_room import CopiesRoom, CountedSource
from trainmaster.transfers.download import download
from trainmaster.transfers.file_sources import FileSource, MirroredFiles

SIZE = CHUNK_BYTES + (5 << 20) + 3


class CutFiles(MirroredFiles):
    """A folder whose reads fail after so many, as over a link that is lost."""

    def __init__(self, root: Path, reads: int) -> None:
        super().__init__(root)
        self.left = reads
        self.offsets: list[int] = []

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise HostError("LINK_LOST", "The link was cut.", "Again.", True)
        self.offsets.append(offset)
        return await super().read(path, offset, min(limit, 700_001))


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("box")
    (root / "model.bin").write_bytes(random.Random(5).randbytes(SIZE))
    (root / "empty").touch()
    return root


def listed(box: Path, name: str = "model.bin") -> ListedFile:
    (item,) = list_files(box, name)
    assert isinstance(item, ListedFile)
    return item


def with_digests(file: ListedFile, box: Path) -> ListedFile:
    data = (box / file.path).read_bytes()
    parts = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
    return replace(file, sha256=tuple(hashlib.sha256(part).hexdigest() for part in parts))


def bring(source: FileSource, file: ListedFile, target: Path) -> int:
    """The bytes that came."""
    came: list[int] = []
    asyncio.run(download(source, file, target, came.append))
    return sum(came)


def assert_whole(box: Path, target: Path) -> None:
    assert target.read_bytes() == (box / "model.bin").read_bytes()
    assert target.stat().st_mtime_ns == (box / "model.bin").stat().st_mtime_ns
    assert [path.name for path in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize("known", [True, False])
def test_a_file_comes_whole_with_its_time_of_change(box: Path, tmp_path: Path, known: bool) -> None:
    file, target = listed(box), tmp_path / "model.bin"
    assert file.sha256 is None
    file = with_digests(file, box) if known else file
    assert bring(MirroredFiles(box), file, target) == SIZE
    assert_whole(box, target)
    source = CutFiles(box, 0)
    assert bring(source, file, target) == SIZE  # nothing is read again


def test_an_empty_file_comes(box: Path, tmp_path: Path) -> None:
    bring(MirroredFiles(box), listed(box, "empty"), tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_cut_download_resumes_where_it_stopped(box: Path, tmp_path: Path) -> None:
    file, target = listed(box), tmp_path / "model.bin"
    part = tmp_path / ".model.bin.part"
    cuts = 0
    while not target.exists():
        source = CutFiles(box, 40)
        before = part.stat().st_size if part.exists() else 0
        try:
            bring(source, file, target)
        except HostError as error:
            assert error.code == "LINK_LOST"
            cuts += 1
        assert min(source.offsets) == before
    assert cuts > 1
    assert_whole(box, target)


@pytest.mark.parametrize("at", [CHUNK_BYTES + 7, *at_length(10, CHUNK_BYTES - 1)])
def test_a_flipped_byte_in_the_part_is_found_and_fetched_again(
    box: Path, tmp_path: Path, at: int
) -> None:
    data = bytearray((box / "model.bin").read_bytes()[: CHUNK_BYTES + (2 << 20)])
    data[at] ^= 64
    (tmp_path / ".model.bin.part").write_bytes(data)
    source = CutFiles(box, 10**6)
    bring(source, listed(box), tmp_path / "model.bin")
    assert_whole(box, tmp_path / "model.bin")
    kept = 0 if at < CHUNK_BYTES else CHUNK_BYTES
    assert min(source.offsets) == kept


@pytest.mark.parametrize("extra", [1, CHUNK_BYTES])
def test_a_part_that_is_too_long_is_cut(box: Path, tmp_path: Path, extra: int) -> None:
    part = tmp_path / ".model.bin.part"
    part.write_bytes((box / "model.bin").read_bytes() + bytes(extra))
    bring(CutFiles(box, 0), listed(box), tmp_path / "model.bin")
    assert_whole(box, tmp_path / "model.bin")


def test_what_is_not_what_was_promised_is_refused_and_not_put_in_place(
    box: Path, tmp_path: Path
) -> None:
    file = with_digests(listed(box), box)
    wrong = replace(file, sha256=(file.sha256[0], "0" * 64))  # type: ignore[index]
    with pytest.raises(HostError) as error:
        bring(MirroredFiles(box), wrong, tmp_path / "model.bin")
    assert (error.value.code, error.value.retryable) == ("DIGEST_MISMATCH", True)
    assert not (tmp_path / "model.bin").exists()
    bring(MirroredFiles(box), file, tmp_path / "model.bin")
    assert_whole(box, tmp_path / "model.bin")


def test_a_file_that_shrank_is_refused(box: Path, tmp_path: Path) -> None:
    longer = replace(listed(box), size_bytes=SIZE + 1)
    with pytest.raises(HostError, match="does not match its digest"):
        bring(MirroredFiles(box), longer, tmp_path / "model.bin")


def test_two_at_the_same_file_do_not_mix(box: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.bin"

    async def both() -> list[BaseException | None]:
        work = [download(MirroredFiles(box), listed(box), target, lambda _: None) for _ in "ab"]
        return await asyncio.gather(*work, return_exceptions=True)

    first, second = sorted(asyncio.run(both()), key=lambda item: item is not None)
    assert first is None
    assert isinstance(second, StorageError) and second.code == "HOME_BUSY"
    assert_whole(box, target)


def test_a_link_in_place_of_the_part_is_not_written_through(box: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / ".model.bin.part").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic link"):
        bring(MirroredFiles(box), listed(box), tmp_path / "in" / "model.bin")
    assert not outside.exists()


def test_a_link_in_place_of_the_file_is_replaced_and_not_written_through(
    box: Path, tmp_path: Path
) -> None:
    outside, target = tmp_path / "outside", tmp_path / "in" / "model.bin"
    target.parent.mkdir()
    outside.write_text("mine")
    target.symlink_to(outside)
    bring(MirroredFiles(box), listed(box), target)
    assert outside.read_text() == "mine"
    assert_whole(box, target)


def test_cancelled_at_any_moment_it_resumes(box: Path, tmp_path: Path) -> None:
    target, seed = tmp_path / "model.bin", int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    chosen = random.Random(seed)

    async def work() -> None:
        for _ in range(6):
            task = asyncio.create_task(
                download(MirroredFiles(box), listed(box), target, lambda _: None)
            )
            await asyncio.wait([task], timeout=chosen.uniform(0.0, 0.1))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await download(MirroredFiles(box), listed(box), target, lambda _: None)

    asyncio.run(work())
    assert_whole(box, target)


@pytest.mark.attack
def test_a_download_leaves_the_disk_its_margin_and_continues_once_there_is_room(
    box: Path, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 40) as disk:
        folder = disk / "fetched"
        folder.mkdir()
        with pytest.raises(OSError) as caught:
            bring(MirroredFiles(box), listed(box), folder / "model.bin")
        assert caught.value.errno == errno.ENOSPC
        assert margin_bytes(disk) <= free_bytes(disk) < margin_bytes(disk) + (2 << 20)
        subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
        assert bring(MirroredFiles(box), listed(box), folder / "model.bin") == SIZE
        assert_whole(box, folder / "model.bin")


@pytest.mark.attack
def test_a_download_stops_where_others_have_filled_the_home_meanwhile(
    box: Path, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    target = home.downloads / "fetched" / "model.bin"
    target.parent.mkdir(parents=True)
    home.settings.write_text("mirror: {copies_gib: 0.03}\n")
    source = CountedSource(MirroredFiles(box), CopiesRoom(home, target.parent))
    with pytest.raises(StorageError) as refused:
        bring(source, listed(box), target)
    assert refused.value.code == "COPIES_FULL"
    (part,) = target.parent.iterdir()
    assert part.stat().st_size <= 0.03 * 2**30 + (4 << 20)  # and a share
    home.settings.unlink()
    assert bring(source, listed(box), target) == SIZE
    assert_whole(box, target)
