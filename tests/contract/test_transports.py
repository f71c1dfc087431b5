"""One suite for every transport: commands on real sshd's."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest
from support.backends.reachability import (
    NOISE,
    Reach,
    SharedHosts,
    commands_on,
    finish,
    some_bytes,
)
from support.backends.ssh_hosts import Sshd
from support.runs.running_run import wait_until

from trainmaster.backends.ssh import Transport
from trainmaster.errors.errors import HostError, UsageError

SHELLS = ["bash", "dash", "zsh", "fish", "tcsh"]
ECHO = ["sh", "-c", 'for word; do printf "%s\\0" "$word"; done', "sh"]
ONE_LINE = [
    "", "-n", "--", " ", "  two  ", "'", '"', "`id`", "$(id)", "$HOME", "${x}", "a\\b\\\\c", "\\",
    "!", "!!", "a!b", "^a^b", "~", "~root", "=ls", "*", "?[a]", "{a,b}", "#no", "%1", "@", "a=b",
    "&&", "|", ";", "<>", "(", ")", "\t", "\r", "".join(map(chr, range(1, 10))), "\x1b[0m\x7f",
    "ü€🙂", "\u202e\uf600", "%s%n", "tm", "EOF",
]  # fmt: skip
LINES = ["\n", "a\nb", "\n\n'x'\n", "!\n", "\\\n", "$n\n", "ends\n"]
LONG = ["x" * 100_000, "' $(id) \"\\" * 8_000]


@pytest.mark.parametrize("shell", SHELLS)
def test_arguments_arrive_exactly_whatever_the_shell_is_and_prints(
    reach: Reach, hosts: SharedHosts, shell: str
) -> None:
    host = hosts(user="ada", shell=shell, rc=NOISE)

    async def echo() -> None:
        async with reach(host) as transport:
            for words in (ONE_LINE, [*LINES, *ONE_LINE], LONG):
                done = await transport.run([*ECHO, *words], timeout_s=20)
                assert (done.code, done.errors) == (0, "")
                assert done.output.split("\0")[:-1] == words

    finish(echo())


@pytest.mark.parametrize("shell", SHELLS)
def test_outputs_hold_nothing_but_the_commands_own(
    reach: Reach, hosts: SharedHosts, shell: str
) -> None:
    host = hosts(user="ada", shell=shell, rc=NOISE)

    async def speak() -> None:
        async with reach(host) as transport:
            spoken = await transport.run(
                ["sh", "-c", "printf out; printf err >&2; exit 3"], timeout_s=20
            )
            assert (spoken.code, spoken.output, spoken.errors) == (3, "out", "err")
            killed = await transport.run(["sh", "-c", "kill -KILL $$"], timeout_s=20)
            assert killed.code == 128 + 9
            missing = await transport.run(["no-such-program"], timeout_s=20)
            assert missing.code == 127 and "no-such-program" in missing.errors

    finish(speak())


@pytest.mark.parametrize("user", ["root", "ada"])
def test_a_command_runs_in_its_folder(reach: Reach, hosts: SharedHosts, user: str) -> None:
    host = hosts(user=user)

    async def enter() -> None:
        async with reach(host) as transport:
            assert await _output(transport, ["pwd"]) == f"{host.home}\n"
            assert await _output(transport, ["id", "-un"]) == f"{user}\n"
            hostile = f"{host.home}/it's a\nfolder $(id) -n"
            assert await _output(transport, ["mkdir", "-p", hostile]) == ""
            assert await _output(transport, ["pwd"], hostile) == f"{hostile}\n"
            gone = await transport.run(["pwd"], folder=f"{host.home}/none", timeout_s=20)
            assert gone.code == 126 and "none" in gone.errors

    finish(enter())


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["false"], 1),
        (["sh", "-c", "exit 124"], 124),
        (["sh", "-c", "exit 255"], 255),
        (["/etc"], 126),
        (["/no/such/program"], 127),
        (["sh", "-c", "kill -TERM $$"], 128 + 15),
    ],
)
def test_exit_codes_are_the_commands_own(
    reach: Reach, hosts: SharedHosts, command: list[str], code: int
) -> None:
    async def run() -> int:
        async with reach(hosts()) as transport:
            return (await transport.run(command, timeout_s=20)).code

    assert finish(run()) == code


def test_a_word_that_can_not_be_an_argument_is_refused(reach: Reach, hosts: SharedHosts) -> None:
    async def run(word: str) -> None:
        async with reach(hosts()) as transport:
            await transport.run(["echo", word], timeout_s=20)

    for word in ("a\0b", "\ud800"):
        with pytest.raises(UsageError) as refused:
            finish(run(word))
        assert refused.value.code == "UNSAFE_NAME"


def test_bytes_that_are_not_text_pass_unchanged(reach: Reach, hosts: SharedHosts) -> None:
    word = bytes(range(128, 256)).decode("utf-8", "surrogateescape")

    async def echo() -> bytes:
        async with reach(hosts()) as transport, transport.stream(["printf", "%s", word]) as stream:
            return await _all(stream.read)

    assert finish(echo()) == bytes(range(128, 256))


def test_input_arrives_exactly(reach: Reach, hosts: SharedHosts) -> None:
    data = some_bytes(5_000_000)

    async def digest() -> str:
        async with reach(hosts(user="ada", shell="zsh", rc=NOISE)) as transport:
            return (await transport.run(["sha256sum"], stdin=data, timeout_s=30)).output

    assert finish(digest()).split()[0] == hashlib.sha256(data).hexdigest()


def test_a_command_that_reads_no_input_ends_all_the_same(reach: Reach, hosts: SharedHosts) -> None:
    async def ignore() -> None:
        async with reach(hosts()) as transport:
            done = await transport.run(["echo", "x"], stdin=b"y" * 5_000_000, timeout_s=20)
            assert (done.code, done.output) == (0, "x\n")
            silent = await transport.run(["cat"], timeout_s=20)
            assert (silent.code, silent.output) == (0, "")

    finish(ignore())


def test_a_stream_goes_both_ways_at_once(reach: Reach, hosts: SharedHosts) -> None:
    data = some_bytes(20_000_000)

    async def pass_through() -> None:
        async with reach(hosts()) as transport, transport.stream(["cat"]) as stream:

            async def send() -> None:
                for begin in range(0, len(data), 300_000):
                    await stream.write(data[begin : begin + 300_000])
                await stream.finish()

            sending = asyncio.create_task(send())
            assert await _all(stream.read) == data
            await sending
            assert await stream.end() == (0, "")

    finish(pass_through())


def test_a_stream_is_read_while_it_is_written(reach: Reach, hosts: SharedHosts) -> None:
    host = hosts(user="ada", shell="bash", rc=NOISE)

    async def converse() -> None:
        talk = ["sh", "-c", 'while read -r word; do echo "<$word>"; done; echo end >&2; exit 5']
        async with reach(host) as transport, transport.stream(talk) as stream:
            for word in (b"one", b"two"):
                await stream.write(word + b"\n")
                heard = b""
                while not heard.endswith(b"\n"):
                    heard += await stream.read(2)
                assert heard == b"<" + word + b">\n"
            await stream.finish()
            assert await stream.end() == (5, "end\n")

    finish(converse())


@pytest.mark.parametrize("user", ["root", "ada"])
@pytest.mark.parametrize("way", ["leave", "cancel", "time-out"])
def test_what_nobody_listens_to_any_more_is_ended(
    reach: Reach, user: str, way: Literal["leave", "cancel", "time-out"]
) -> None:
    async def abandon(host: Sshd, command: list[str]) -> None:
        async with reach(host) as transport:
            if way == "leave":
                async with transport.stream(command):
                    pass
            elif way == "time-out":
                try:
                    assert (await transport.run(command, timeout_s=0.7)).code == 124
                except HostError as error:  # 256 MiB came first
                    assert (command, error.code) == (["yes"], "HOST_DATA_REFUSED")
            else:
                running = asyncio.create_task(transport.run(command, timeout_s=50))
                while command not in [line.split() for line in commands_on(host)]:
                    await asyncio.sleep(0.05)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            await _until_ended(host, command)
            assert await _output(transport, ["echo", "still here"]) == "still here\n"

    with Sshd(user=user) as host:
        finish(abandon(host, ["sleep", "1000"]))
        finish(abandon(host, ["yes"]))


def test_a_detached_child_lives_on(reach: Reach) -> None:
    start = "setsid sleep 1000 > /dev/null 2>&1 < /dev/null & echo started"

    async def detach(host: Sshd) -> None:
        async with reach(host) as transport:
            assert await _output(transport, ["sh", "-c", start]) == "started\n"

    with Sshd(user="ada") as host:
        finish(detach(host))
        wait_until(lambda: not host.connections, "the end of the connection")
        # It may only just be beginning; what was ended with the connection would never come.
        wait_until(lambda: "sleep 1000" in commands_on(host), "the child")


def test_more_commands_than_the_server_takes_at_once_all_pass(reach: Reach) -> None:
    async def crowd(host: Sshd) -> None:
        async with reach(host) as transport:
            calls = [transport.run(["echo", str(n)], timeout_s=50) for n in range(30)]
            done = await asyncio.gather(*calls)
            assert [each.output for each in done] == [f"{n}\n" for n in range(30)]

    with Sshd() as host:
        finish(crowd(host))


def test_a_shell_that_lets_nobody_through_is_named_with_its_last_words(reach: Reach) -> None:
    async def knock(host: Sshd) -> None:
        async with reach(host) as transport:
            with pytest.raises(HostError) as refused:
                await transport.run(["true"], timeout_s=20)
            assert refused.value.code == "SHELL_UNUSABLE"
            assert "not available" in refused.value.message

    with Sshd(user="ada", shell="nologin") as host:
        finish(knock(host))


async def _output(transport: Transport, command: list[str], folder: str | None = None) -> str:
    done = await transport.run(command, folder=folder, timeout_s=20)
    assert (done.code, done.errors) == (0, "")
    return done.output


async def _all(read: Callable[[int], Awaitable[bytes]]) -> bytes:
    pieces = []
    while piece := await read(1 << 18):
        pieces.append(piece)
    return b"".join(pieces)


async def _until_ended(host: Sshd, command: list[str]) -> None:
    async with asyncio.timeout(30):
        while command in [line.split() for line in commands_on(host)]:
            await asyncio.sleep(0.05)
