"""One suite for every transport: files, with SFTP of each kind and without."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.backends.reachability import Reach, SharedHosts, finish, some_bytes
from support.backends.ssh_hosts import Sshd

from trainmaster.errors.errors import HostError

PRINTS = "echo Welcome; printf 'no end'\n"
WAYS: dict[str, dict[str, Any]] = {
    "internal-sftp": {"sftp": "internal-sftp"},
    "external": {"sftp": "external"},
    "external, a shell that prints": {"sftp": "external", "shell": "zsh", "rc": PRINTS},
    "none": {"sftp": None},
}
NAMES = ["plain", "-n", "it's $(id)\n!", " ", "ü€🙂", "\udcff\udcfe", "*", ".hidden", "..double"]

# To read all of it takes minutes.
LARGE_BYTES = 1 << 40

way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def place(hosts: SharedHosts, way: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(hosts(user="ada", **WAYS[way]), tmp_path_factory.mktemp("x").name)


class Place:
    """A new folder on a shared host."""

    def __init__(self, host: Sshd, name: str) -> None:
        self.host = host
        self.here = host.home / f"{name}-{id(self)}"
        self.here.mkdir()
        self.here.chmod(0o777)

    def path(self, name: str) -> str:
        return f"{self.here}/{name}"


@way
def test_files_are_put_and_got_exactly(reach: Reach, place: Place) -> None:
    data = some_bytes(3_000_001)

    async def exchange() -> None:
        async with reach(place.host) as transport:
            path = place.path("data")
            await transport.put(path, data, mode=0o751)
            file = place.here / "data"
            assert file.read_bytes() == data and file.stat().st_mode & 0o7777 == 0o751
            assert await transport.size(path) == len(data)
            for offset, limit in ((0, 1), (0, 4_000_000), (2_999_999, 100), (70_000, 1_200_000)):
                assert await transport.get(path, offset, limit) == data[offset : offset + limit]
            assert await transport.get(path, len(data), 10) == b""
            assert await transport.get(path, len(data) + 10, 10) == b""
            assert await transport.get(path, 5, 0) == b""

    finish(exchange())


@way
def test_a_file_is_replaced_wholly_and_nothing_is_left_beside_it(
    reach: Reach, place: Place
) -> None:
    async def replace() -> None:
        async with reach(place.host) as transport:
            path = place.path("file")
            for data in (b"a long one" * 1000, b"short", b""):
                held = (place.here / "file").open("rb") if data != b"a long one" * 1000 else None
                await transport.put(path, data)
                assert await transport.get(path, 0, 100_000) == data
                if held is not None:  # a reader of the old file keeps it
                    assert held.read() != data
                    held.close()
            assert await transport.names(str(place.here)) == ["file"]
            await asyncio.gather(*(transport.put(path, b"%d" % n * 9000) for n in range(9)))
            found = await transport.get(path, 0, 100_000)
            assert found in [b"%d" % n * 9000 for n in range(9)]
            assert await transport.names(str(place.here)) == ["file"]

    finish(replace())


@way
def test_names_of_every_kind_are_kept(reach: Reach, place: Place) -> None:
    async def name() -> None:
        async with reach(place.host) as transport:
            for each in NAMES:
                await transport.put(place.path(each), each.encode("utf-8", "surrogateescape"))
            assert await transport.names(str(place.here)) == sorted(NAMES)
            for each in NAMES:
                data = await transport.get(place.path(each), 0, 100)
                assert data == each.encode("utf-8", "surrogateescape")
                assert await transport.size(place.path(each)) == len(data)

    finish(name())


@way
def test_what_is_not_there_is_none_and_not_an_error(reach: Reach, place: Place) -> None:
    (place.here / "file").write_bytes(b"x")

    async def read() -> None:
        async with reach(place.host) as transport:
            for missing in ("none", "none/none", "file/none"):
                assert await transport.get(place.path(missing), 0, 10) is None
                assert await transport.size(place.path(missing)) is None
            assert await transport.names(place.path("none")) == []
            assert await transport.names(place.path("file")) == []
            with pytest.raises(HostError):
                await transport.get(str(place.here), 0, 10)

    finish(read())


@way
def test_what_can_not_be_written_is_refused_and_leaves_all_as_it_was(
    reach: Reach, place: Place
) -> None:
    closed = place.here / "closed"
    closed.mkdir()
    (closed / "file").write_bytes(b"old")
    closed.chmod(0o555)
    (place.here / "folder").mkdir()

    async def refuse(name: str) -> None:
        async with reach(place.host) as transport:
            with pytest.raises(HostError) as refused:
                await transport.put(place.path(name), b"new")
            assert refused.value.code == "ROOT_NOT_WRITABLE", refused.value
            assert name in refused.value.message

    for name in ("none/file", "closed/file", "closed/other", "folder"):
        finish(refuse(name))
    assert (closed / "file").read_bytes() == b"old"
    assert sorted(path.name for path in place.here.rglob("*")) == ["closed", "file", "folder"]


@way
@pytest.mark.parametrize("by_quota", [False, True])
def test_a_full_disk_is_reported_and_keeps_the_old_file(
    reach: Reach, hosts: SharedHosts, way: str, by_quota: bool
) -> None:
    async def fill(host: Sshd, small: Path) -> None:
        async with reach(host) as transport:
            await transport.put(f"{small}/file", b"old")
            with pytest.raises(HostError) as refused:
                await transport.put(f"{small}/file", b"x" * 3_000_000)
            assert refused.value.code == "DISK_FULL", refused.value
            assert await transport.names(str(small)) == ["file"]
            assert await transport.get(f"{small}/file", 0, 10) == b"old"

    with Sshd(user="ada", **WAYS[way]) as host:
        host.mount_small_disk(host.home / "small", by_quota=by_quota)
        finish(fill(host, host.home / "small"))


@way
def test_a_file_that_grows_is_read_on_from_where_one_was(reach: Reach, place: Place) -> None:
    async def follow() -> None:
        async with reach(place.host) as transport:
            read = b""
            for number in range(3):
                with (place.here / "log").open("ab") as log:
                    log.write(b"line %d\n" % number)
                read += await transport.get(place.path("log"), len(read), 1 << 20) or b""
            assert read == b"line 0\nline 1\nline 2\n"

    finish(follow())


@way
def test_the_end_of_a_large_file_is_near(reach: Reach, place: Place) -> None:
    path = place.here / "large"
    with path.open("wb") as file:  # a hole: takes no room
        file.seek(LARGE_BYTES)
        file.write(b"the end")

    async def read() -> None:
        async with reach(place.host) as transport:
            assert await transport.size(str(path)) == LARGE_BYTES + 7
            async with asyncio.timeout(20):
                assert await transport.get(str(path), LARGE_BYTES, 1000) == b"the end"

    finish(read())


def test_files_and_commands_share_the_one_session_that_a_server_allows(reach: Reach) -> None:
    async def share(host: Sshd) -> None:
        async with reach(host) as transport:
            for number in range(2):
                await transport.put(f"{host.home}/file", b"%d" % number)
                done = await transport.run(["cat", f"{host.home}/file"], timeout_s=20)
                assert done.output == str(number)
                assert await transport.size(f"{host.home}/file") == 1

    with Sshd(max_sessions=1) as host:
        finish(share(host))
