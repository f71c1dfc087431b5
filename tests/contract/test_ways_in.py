"""One suite for every transport: host keys, private keys, configuration, jump hosts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.backends.reachability import PASSPHRASE, Reach, StandingBoxes, User, said
from support.backends.ssh_hosts import Sshd, make_key
from support.backends.tcp_proxy import free_port

from trainmaster.backends.ssh.host_keys import Pins
from trainmaster.backends.ssh.private_keys import PASSPHRASE_VARIABLE
from trainmaster.words.errors import HostError


def block(name: str, box: Sshd, *more: str) -> str:
    """A `Host` block by which the user reaches a box."""
    known = [f"HostName {box.address}", f"Port {box.port}", f"User {box.user}", *more]
    return "\n  ".join([f"Host {name}", *known])


def refused(reach: Reach, box: Sshd, **changes: str | int | None) -> HostError:
    with pytest.raises(HostError) as error:
        said(reach, box, **changes)
    return error.value


def fingerprint(box: Sshd) -> str:
    shown = subprocess.check_output(["ssh-keygen", "-lf", box.root / "host_ed25519.pub"], text=True)
    return shown.split()[1]


def test_a_host_is_pinned_at_first_use_and_nobody_is_asked(
    reach: Reach, boxes: StandingBoxes
) -> None:
    assert said(reach, boxes()) == "root"
    assert reach.pins.read_text() == boxes().known_hosts()
    assert reach.pins.stat().st_mode & 0o777 == 0o600
    assert said(reach, boxes()) == "root"
    assert [pin.fingerprint for pin in Pins(reach.pins, "box").all()] == [fingerprint(boxes())]


def test_another_sshd_on_the_same_port_is_refused_until_the_host_is_forgotten(
    reach: Reach, user: User
) -> None:
    with Sshd() as box:
        said(reach, box)
        first = fingerprint(box)
        box.halt()
        with Sshd(port=box.port) as other:
            other.allow(box.key.with_suffix(".pub").read_text())
            (user.home / ".ssh" / "known_hosts").write_text(other.known_hosts())
            error = refused(reach, box)
            assert error.code == "HOST_KEY_CHANGED"
            assert first in error.message
            assert fingerprint(other) in error.message
            assert "trainmaster hosts trust box" in error.fix
            assert not error.retryable
            assert "Accepted" not in other.log.read_text()
            Pins(reach.pins, "box").forget()
            assert said(reach, box) == "root"
            assert reach.pins.read_text() == other.known_hosts()


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_a_key_of_another_kind_is_another_key(reach: Reach, tmp_path: Path, kind: str) -> None:
    key = make_key(tmp_path / "host", kind=kind)
    with Sshd() as box:
        said(reach, box)
        box.halt()
        with Sshd(port=box.port, options={"HostKey": str(key)}) as other:
            other.allow(box.key.with_suffix(".pub").read_text())
            error = refused(reach, box)
            assert error.code == "HOST_KEY_CHANGED"
            shown = subprocess.check_output(["ssh-keygen", "-lf", key], text=True).split()[1]
            assert shown in error.message
            assert fingerprint(box) in error.message
            assert "Accepted" not in other.log.read_text()


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_a_server_with_several_keys_is_known_by_the_pinned_one(
    reach: Reach, tmp_path: Path, kind: str
) -> None:
    key = make_key(tmp_path / "host", kind=kind)
    port = free_port("127.0.0.1")
    with Sshd(port=port, options={"HostKey": str(key)}) as box:
        said(reach, box)
        pinned = reach.pins.read_text()
        box.halt()
        both = f"{box.root}/host_ed25519\nHostKey {key}"
        with Sshd(port=port, options={"HostKey": both}) as grown:
            grown.allow(box.key.with_suffix(".pub").read_text())
            assert said(reach, box) == "root"
            assert reach.pins.read_text() == pinned


def test_a_key_that_the_host_does_not_know_is_named(
    reach: Reach, boxes: StandingBoxes, tmp_path: Path
) -> None:
    key = make_key(tmp_path / "stranger")
    error = refused(reach, boxes(), key=str(key))
    assert error.code == "AUTH_FAILED"
    assert str(key) in error.message
    assert not error.retryable


def test_without_any_key_nobody_gets_in(reach: Reach, boxes: StandingBoxes) -> None:
    assert refused(reach, boxes(), key=None).code == "AUTH_FAILED"


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_keys_of_every_kind_get_in(
    reach: Reach, boxes: StandingBoxes, tmp_path: Path, kind: str
) -> None:
    key = make_key(tmp_path / "own", kind=kind)
    boxes().allow(key.with_suffix(".pub").read_text())
    assert said(reach, boxes(), key=str(key)) == "root"


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_an_encrypted_key_opens_by_the_passphrase_from_the_environment(
    reach: Reach, boxes: StandingBoxes, user: User, kind: str
) -> None:
    key = make_key(user.home / "locked", PASSPHRASE, kind)
    if kind == "rsa":  # in the older format, too
        change = ["-p", "-m", "PEM", "-P", PASSPHRASE, "-N", PASSPHRASE]
        subprocess.run(["ssh-keygen", "-q", *change, "-f", key], check=True)
    boxes().allow(key.with_suffix(".pub").read_text())
    error = refused(reach, boxes(), key=str(key))
    assert error.code == "KEY_LOCKED"
    assert str(key) in error.message
    assert PASSPHRASE_VARIABLE in error.fix
    user.knows_passphrase("another")
    assert refused(reach, boxes(), key=str(key)).code == "KEY_LOCKED"
    user.knows_passphrase(PASSPHRASE)
    assert said(reach, boxes(), key=str(key)) == "root"


@pytest.mark.parametrize("named", [False, True])
def test_an_agents_key_gets_in(reach: Reach, user: User, named: bool) -> None:
    key = make_key(user.home / "held")
    with Sshd() as box:
        box.allow(key.with_suffix(".pub").read_text())
        with user.agent(make_key(user.home / "other"), key):
            subprocess.run(["ssh-keygen", "-q", "-p", "-N", PASSPHRASE, "-f", key], check=True)
            assert said(reach, box, key=str(key) if named else None) == "root"
        assert refused(reach, box, key=str(key)).code == "KEY_LOCKED"


def test_an_agent_is_never_forwarded(reach: Reach, boxes: StandingBoxes, user: User) -> None:
    user.configure("Host *\n  ForwardAgent yes")
    with user.agent():
        told = said(reach, boxes(), "sh", "-c", 'echo "${SSH_AUTH_SOCK-unset}"')
    assert told == "unset"


def test_an_alias_of_the_configuration_is_enough(reach: Reach, user: User) -> None:
    with Sshd(user="ada") as box:
        user.configure(block("gpu?", box, f"IdentityFile {box.key}", "LogLevel QUIET"))
        nothing = {"user": None, "port": None, "key": None}
        assert said(reach, box, address="gpu1", **nothing) == "ada"
        assert reach.pins.read_text() == box.known_hosts()


@pytest.mark.parametrize("count", [1, 2])
def test_jump_hosts_are_gone_through_and_each_is_pinned(
    reach: Reach, boxes: StandingBoxes, count: int
) -> None:
    hops = [boxes(user=name) for name in ("ada", "eve")[:count]]
    box = boxes()
    for hop in hops:
        hop.allow(box.key.with_suffix(".pub").read_text())
    jump = ",".join(f"{hop.user}@{hop.address}:{hop.port}" for hop in hops)
    told = said(reach, box, "sh", "-c", "echo $SSH_CONNECTION", jump=jump)
    assert told.endswith(f" {box.port}")
    assert sorted(reach.pins.read_text().splitlines(True)) == sorted(
        [hop.known_hosts() for hop in [*hops, box]]
    )
    used = [f"Accepted publickey for {hop.user}" in hop.log.read_text() for hop in hops]
    assert used == [True] * count


def test_jump_hosts_of_the_configuration_have_settings_of_their_own(
    reach: Reach, user: User, tmp_path: Path
) -> None:
    key = make_key(tmp_path / "outer")
    with Sshd(user="ada") as outer, Sshd() as box:
        outer.allow(key.with_suffix(".pub").read_text())
        user.configure(
            block("outer", outer, f"IdentityFile {key}", "IdentitiesOnly yes"),
            block("gpu1", box, f"IdentityFile {box.key}", "ProxyJump outer"),
        )
        nothing = {"user": None, "port": None, "key": None}
        assert said(reach, box, address="gpu1", **nothing) == "root"
        assert "Accepted publickey for ada" in outer.log.read_text()


def test_a_jump_host_with_another_key_is_refused(reach: Reach, boxes: StandingBoxes) -> None:
    box = boxes()
    with Sshd(user="ada") as jump:
        jump.allow(box.key.with_suffix(".pub").read_text())
        way = f"ada@{jump.address}:{jump.port}"
        said(reach, box, jump=way)
        first = fingerprint(jump)
        jump.rotate_host_key()
        error = refused(reach, box, jump=way)
        assert error.code == "HOST_KEY_CHANGED"
        assert "jump host" in error.message
        assert first in error.message
        assert fingerprint(jump) in error.message


def test_a_host_behind_a_jump_host_with_another_key_is_refused(
    reach: Reach, boxes: StandingBoxes
) -> None:
    jump = boxes()
    with Sshd() as box:
        jump.allow(box.key.with_suffix(".pub").read_text())
        way = f"root@{jump.address}:{jump.port}"
        said(reach, box, jump=way)
        box.rotate_host_key()
        error = refused(reach, box, jump=way)
        assert error.code == "HOST_KEY_CHANGED"
        assert fingerprint(box) in error.message


def test_it_is_told_which_hop_is_not_there_or_lets_nobody_in(
    reach: Reach, boxes: StandingBoxes, tmp_path: Path
) -> None:
    box, stranger = boxes(), make_key(tmp_path / "stranger")
    nowhere = free_port("127.0.0.1")
    jump = f"root@{box.address}:{box.port}"
    gone = refused(reach, box, jump=f"root@127.0.0.1:{nowhere}")
    assert (gone.code, gone.retryable) == ("HOST_UNREACHABLE", True)
    assert f"jump host 127.0.0.1 (root@127.0.0.1:{nowhere})" in gone.message
    beyond = refused(reach, box, jump=jump, port=nowhere)
    assert beyond.code == "HOST_UNREACHABLE"
    assert f"box (root@127.0.0.1:{nowhere})" in beyond.message
    unknown = refused(reach, box, jump=jump, address="nobody.invalid")
    assert unknown.code == "HOST_UNREACHABLE"
    assert "nobody.invalid" in unknown.message
    shut = refused(reach, box, jump=jump, key=str(stranger))
    assert shut.code == "AUTH_FAILED"
    assert "jump host" in shut.message


def test_a_proxy_command_of_the_configuration_is_used(
    reach: Reach, boxes: StandingBoxes, user: User
) -> None:
    box = boxes()
    used = user.home / "used"
    relay = (
        f"{sys.executable} -c \"import socket,sys,threading,os;open('{used}','w').close();"
        "s=socket.create_connection((sys.argv[1],int(sys.argv[2])));"
        "threading.Thread(target=lambda:[s.sendall(b) for b in iter(lambda:os.read(0,65536),b'')],"
        "daemon=True).start();"
        "[os.write(1,b) for b in iter(lambda:s.recv(65536),b'')]\" %h %p"
    )
    user.configure(block("gpu1", box, f"ProxyCommand {relay}"))
    assert said(reach, box, address="gpu1", user=None, port=None) == "root"
    assert used.exists()
