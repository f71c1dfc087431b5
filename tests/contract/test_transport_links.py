"""One suite for every transport: links that break, hosts that are not there, the link above."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from support.backends.reachability import TRANSPORTS, Reach, SharedHosts, finish, some_bytes
from support.backends.ssh_hosts import CuttingProxy, Network, Sshd, make_key
from support.backends.tcp_proxy import free_port

from trainmaster.backends.ssh import Transport
from trainmaster.backends.ssh.error_mapping import KEEPALIVE_EVERY_S, KEEPALIVE_MISSES
from trainmaster.backends.ssh.link import REPEAT_FOR_S, Link
from trainmaster.errors.errors import HostError

SOON_S = 10.0
SEEN_S = 2.0 * KEEPALIVE_EVERY_S * (KEEPALIVE_MISSES + 1)  # on a busy machine
GIVEN_UP_S = 12.0  # sooner than a connection that nobody answers gives up by itself


@pytest.fixture
def proxy(hosts: SharedHosts) -> Iterator[CuttingProxy]:
    host = hosts()
    with CuttingProxy((host.address, host.port)) as passing:
        yield passing


@pytest.fixture
def link(reach: Reach, hosts: SharedHosts, proxy: CuttingProxy) -> Link:
    return Link(reach.record(hosts(), port=proxy.port), reach.pins)


async def _run(transport: Transport) -> None:
    await transport.run(["sleep", "1000"], timeout_s=100)


async def _stream(transport: Transport) -> None:
    async with transport.stream(["sleep", "1000"]) as stream:
        while await stream.read(100):
            continue
        await stream.end()


async def _send(transport: Transport) -> None:
    async with transport.stream(["sleep", "1000"]) as stream:
        while True:
            await stream.write(b"x" * 100_000)


async def _get(transport: Transport) -> None:
    while True:
        await transport.get("/dev/shm/../../usr/bin/bash", 0, 1 << 20)


async def _put(transport: Transport) -> None:
    while True:
        await transport.put(f"/tmp/tm-put-{os.getpid()}", some_bytes(2_000_000))


@pytest.mark.parametrize("work", [_run, _stream, _send, _get, _put])
@pytest.mark.parametrize("way", ["cut", "killed"])
def test_a_broken_link_is_reported_soon(
    reach: Reach, way: str, work: Callable[[Transport], Awaitable[None]]
) -> None:
    async def lose(host: Sshd, proxy: CuttingProxy) -> None:
        async with reach(host, port=proxy.port) as transport:
            assert (await transport.run(["true"], timeout_s=20)).code == 0
            working = asyncio.create_task(_awaited(work(transport)))
            passed = proxy.passed_bytes
            while proxy.passed_bytes < passed + 500:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(proxy.cut if way == "cut" else host.drop_connections)
            async with asyncio.timeout(SOON_S):
                with pytest.raises(HostError) as lost:
                    await working
                assert lost.value.code == "LINK_LOST" and lost.value.retryable
                with pytest.raises(HostError) as still_lost:
                    await transport.run(["true"], timeout_s=20)
                assert still_lost.value.code == "LINK_LOST"
        async with reach(host, port=proxy.port) as transport:
            assert (await transport.run(["true"], timeout_s=20)).code == 0

    with Sshd() as host, CuttingProxy((host.address, host.port)) as proxy:
        finish(lose(host, proxy))
        Path(f"/tmp/tm-put-{os.getpid()}").unlink(missing_ok=True)


def test_a_refused_port_is_a_host_that_can_not_be_reached(reach: Reach, hosts: SharedHosts) -> None:
    refused = _refused(reach, hosts(), port=free_port("127.0.0.1"))
    assert refused.code == "HOST_UNREACHABLE" and refused.retryable


def test_a_name_that_nobody_has_is_a_host_that_can_not_be_reached(
    reach: Reach, hosts: SharedHosts
) -> None:
    refused = _refused(reach, hosts(), address="nobody.invalid")
    assert refused.code == "HOST_UNREACHABLE"
    assert "nobody.invalid" in refused.message


def test_a_server_without_ssh_is_unreachable(reach: Reach, hosts: SharedHosts) -> None:
    with CuttingProxy(("127.0.0.1", free_port("127.0.0.1"))) as nothing_behind:
        assert _refused(reach, hosts(), port=nothing_behind.port).code == "HOST_UNREACHABLE"


def test_a_connection_that_is_given_up_keeps_nobody_waiting(
    link: Link, proxy: CuttingProxy
) -> None:
    async def give_up() -> None:
        await asyncio.to_thread(proxy.freeze)
        asking = asyncio.create_task(link.repeat(_true))
        while not proxy.accepted:
            await asyncio.sleep(0.02)
        began_s.append(time.monotonic())
        await link.disconnect()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    began_s: list[float] = []
    finish(give_up())  # the loop's own threads are waited for, too
    assert time.monotonic() - began_s[0] < GIVEN_UP_S


def test_a_network_is_seen_to_part_and_used_again_once_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All transports in one test: each waits as long as the others."""
    monkeypatch.setenv("HOME", str(tmp_path))

    async def part(network: Network, host: Sshd) -> None:
        links = [Link(host.record(transport=name), tmp_path / name) for name in TRANSPORTS]
        parted = asyncio.Event()
        losing = [asyncio.create_task(lose(link, parted)) for link in links]
        await asyncio.gather(*(link.repeat(_true) for link in links))
        network.partition("far")
        parted.set()
        await asyncio.gather(*losing)
        network.heal("far")
        assert await asyncio.gather(*(link.repeat(_true) for link in links)) == [0] * len(links)
        await asyncio.gather(*(link.disconnect() for link in links))

    async def lose(link: Link, parted: asyncio.Event) -> None:
        async with link.use() as transport:
            running = asyncio.create_task(transport.run(["sleep", "1000"], timeout_s=100))
            await parted.wait()
            async with asyncio.timeout(SEEN_S):
                with pytest.raises(HostError) as lost:
                    await running
        assert lost.value.code == "LINK_LOST"

    with (
        Network() as network,
        Sshd(netns=network.add("far"), address=network.address("far"), port=22) as host,
    ):
        finish(part(network, host), 120)


def test_an_address_that_nobody_has_is_a_host_that_can_not_be_reached(
    reach: Reach, hosts: SharedHosts
) -> None:
    with Network() as network:
        network.add("near")
        nobody = network.address("near").rpartition(".")[0] + ".200"
        assert _refused(reach, hosts(), address=nobody).code == "HOST_UNREACHABLE"


def test_a_key_that_the_host_does_not_know_is_refused(
    reach: Reach, hosts: SharedHosts, tmp_path: Path
) -> None:
    refused = _refused(reach, hosts(), key=str(make_key(tmp_path / "other")))
    assert refused.code == "AUTH_FAILED" and not refused.retryable


def test_a_link_makes_one_connection_for_all(link: Link, proxy: CuttingProxy) -> None:
    async def crowd() -> None:
        async def echo(number: int) -> str:
            done = await link.repeat(
                lambda transport: transport.run(["echo", str(number)], timeout_s=50)
            )
            return done.output

        assert await asyncio.gather(*map(echo, range(40))) == [f"{n}\n" for n in range(40)]
        await link.disconnect()
        await link.disconnect()

    finish(crowd())
    assert proxy.accepted == 1


def test_a_link_repeats_what_broke_and_makes_one_new_connection(
    link: Link, proxy: CuttingProxy, tmp_path: Path
) -> None:
    is_cut, begun = tmp_path / "cut", tmp_path / "begun"

    async def cut() -> None:
        # The first time it would last for ever.
        slow = ["sh", "-c", f"test -e {is_cut} || {{ touch {begun}; sleep 1000; }}; echo done"]
        working = [
            asyncio.create_task(link.repeat(lambda transport: transport.run(slow, timeout_s=50)))
            for _ in range(6)
        ]
        async with link.use() as transport:
            assert (await transport.run(["true"], timeout_s=20)).code == 0
        while not begun.exists():
            await asyncio.sleep(0.02)
        is_cut.touch()
        await asyncio.to_thread(proxy.cut)
        assert [done.output for done in await asyncio.gather(*working)] == ["done\n"] * 6
        await link.disconnect()

    finish(cut())
    assert proxy.accepted == 2


def test_a_link_waits_for_a_host_that_comes_back(link: Link, proxy: CuttingProxy) -> None:
    async def wait() -> None:
        await link.repeat(lambda transport: transport.size("/"))
        await asyncio.to_thread(proxy.refuse)
        await asyncio.to_thread(proxy.cut)
        asking = asyncio.create_task(link.repeat(lambda transport: transport.size("/etc/passwd")))
        done, _ = await asyncio.wait([asking], timeout=1.5)
        assert not done
        await asyncio.to_thread(proxy.refuse, False)
        assert await asking
        await link.disconnect()

    finish(wait())


def test_a_host_that_was_never_reached_fails_soon(link: Link, proxy: CuttingProxy) -> None:
    async def ask() -> None:
        await asyncio.to_thread(proxy.refuse)
        async with asyncio.timeout(REPEAT_FOR_S):  # what one that was reached takes
            await link.repeat(lambda transport: transport.size("/"))

    with pytest.raises(HostError) as refused:
        finish(ask())
    assert refused.value.code == "HOST_UNREACHABLE"


def test_what_the_machine_refuses_is_not_repeated(link: Link) -> None:
    tried = []

    async def put(transport: Transport) -> None:
        tried.append(transport)
        await transport.put("/no/such/folder/file", b"")

    with pytest.raises(HostError):
        finish(link.repeat(put))
    assert len(tried) == 1


def test_a_link_serves_one_event_loop_after_the_other(link: Link, proxy: CuttingProxy) -> None:
    async def ask() -> int | None:
        return await link.repeat(lambda transport: transport.size("/etc/passwd"))

    assert finish(ask()) == finish(ask())
    assert proxy.accepted == 2


def _refused(reach: Reach, host: Sshd, **changes: object) -> HostError:
    async def connect() -> None:
        async with reach(host, **changes):
            raise AssertionError("there was a connection")

    with pytest.raises(HostError) as refused:
        finish(connect())
    return refused.value


async def _true(transport: Transport) -> int:
    return (await transport.run(["true"], timeout_s=20)).code


async def _awaited(work: Awaitable[None]) -> None:
    await work
