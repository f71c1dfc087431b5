"""One suite for every transport: host keys, private keys, configuration, jump hosts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.backends.reachability import PASSPHRASE, Reach, SharedHosts, User, said
from support.backends.ssh_hosts import Sshd, make_key
from support.backends.tcp_proxy import free_port

from trainmaster.backends.ssh.host_keys import Pins
from trainmaster.backends.ssh.private_keys import PASSPHRASE_VARIABLE
from trainmaster.errors.errors import HostError


def block(name: str, host: Sshd, *more: str) -> str:
    """A `Host` block by which the user reaches a host."""
    known = [f"HostName {host.address}", f"Port {host.port}", f"User {host.user}", *more]
    return "\n  ".join([f"Host {name}", *known])


def refused(reach: Reach, host: Sshd, **changes: str | int | None) -> HostError:
    with pytest.raises(HostError) as error:
        said(reach, host, **changes)
    return error.value


def fingerprint(host: Sshd) -> str:
    shown = subprocess.check_output(
        ["ssh-keygen", "-lf", host.root / "host_ed25519.pub"], text=True
    )
    return shown.split()[1]


def test_a_host_is_pinned_at_first_use_and_nobody_is_asked(
    reach: Reach, hosts: SharedHosts
) -> None:
    assert said(reach, hosts()) == "root"
    assert reach.pins.read_text() == hosts().known_hosts()
    assert reach.pins.stat().st_mode & 0o777 == 0o600
    assert said(reach, hosts()) == "root"
    assert [pin.fingerprint for pin in Pins(reach.pins, "gpu1").all()] == [fingerprint(hosts())]


def test_another_sshd_on_the_same_port_is_refused_until_the_host_is_forgotten(
    reach: Reach, user: User
) -> None:
    with Sshd() as host:
        said(reach, host)
        first = fingerprint(host)
        host.halt()
        with Sshd(port=host.port) as other:
            other.allow(host.key.with_suffix(".pub").read_text())
            (user.home / ".ssh" / "known_hosts").write_text(other.known_hosts())
            error = refused(reach, host)
            assert error.code == "HOST_KEY_CHANGED"
            assert first in error.message
            assert fingerprint(other) in error.message
            assert "trainmaster hosts trust gpu1" in error.fix
            assert not error.retryable
            assert "Accepted" not in other.log.read_text()
            Pins(reach.pins, "gpu1").forget()
            assert said(reach, host) == "root"
            assert reach.pins.read_text() == other.known_hosts()


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_a_key_of_another_kind_is_another_key(reach: Reach, tmp_path: Path, kind: str) -> None:
    key = make_key(tmp_path / "host", kind=kind)
    with Sshd() as host:
        said(reach, host)
        host.halt()
        with Sshd(port=host.port, options={"HostKey": str(key)}) as other:
            other.allow(host.key.with_suffix(".pub").read_text())
            error = refused(reach, host)
            assert error.code == "HOST_KEY_CHANGED"
            shown = subprocess.check_output(["ssh-keygen", "-lf", key], text=True).split()[1]
            assert shown in error.message
            assert fingerprint(host) in error.message
            assert "Accepted" not in other.log.read_text()


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_a_server_with_several_keys_is_known_by_the_pinned_one(
    reach: Reach, tmp_path: Path, kind: str
) -> None:
    key = make_key(tmp_path / "host", kind=kind)
    port = free_port("127.0.0.1")
    with Sshd(port=port, options={"HostKey": str(key)}) as host:
        said(reach, host)
        pinned = reach.pins.read_text()
        host.halt()
        both = f"{host.root}/host_ed25519\nHostKey {key}"
        with Sshd(port=port, options={"HostKey": both}) as grown:
            grown.allow(host.key.with_suffix(".pub").read_text())
            assert said(reach, host) == "root"
            assert reach.pins.read_text() == pinned


def test_a_key_that_the_host_does_not_know_is_named(
    reach: Reach, hosts: SharedHosts, tmp_path: Path
) -> None:
    key = make_key(tmp_path / "unknown")
    error = refused(reach, hosts(), key=str(key))
    assert error.code == "AUTH_FAILED"
    assert str(key) in error.message
    assert not error.retryable


def test_a_login_without_keys_fails(reach: Reach, hosts: SharedHosts) -> None:
    assert refused(reach, hosts(), key=None).code == "AUTH_FAILED"


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_keys_of_every_kind_get_in(
    reach: Reach, hosts: SharedHosts, tmp_path: Path, kind: str
) -> None:
    key = make_key(tmp_path / "own", kind=kind)
    hosts().allow(key.with_suffix(".pub").read_text())
    assert said(reach, hosts(), key=str(key)) == "root"


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_an_encrypted_key_opens_by_the_passphrase_from_the_environment(
    reach: Reach, hosts: SharedHosts, user: User, kind: str
) -> None:
    key = make_key(user.home / "locked", PASSPHRASE, kind)
    if kind == "rsa":  # in the older format, too
        change = ["-p", "-m", "PEM", "-P", PASSPHRASE, "-N", PASSPHRASE]
        subprocess.run(["ssh-keygen", "-q", *change, "-f", key], check=True)
    hosts().allow(key.with_suffix(".pub").read_text())
    error = refused(reach, hosts(), key=str(key))
    assert error.code == "KEY_LOCKED"
    assert str(key) in error.message
    assert PASSPHRASE_VARIABLE in error.fix
    user.knows_passphrase("another")
    assert refused(reach, hosts(), key=str(key)).code == "KEY_LOCKED"
    user.knows_passphrase(PASSPHRASE)
    assert said(reach, hosts(), key=str(key)) == "root"


@pytest.mark.parametrize("named", [False, True])
def test_an_agents_key_gets_in(reach: Reach, user: User, named: bool) -> None:
    key = make_key(user.home / "held")
    with Sshd() as host:
        host.allow(key.with_suffix(".pub").read_text())
        with user.agent(make_key(user.home / "other"), key):
            subprocess.run(["ssh-keygen", "-q", "-p", "-N", PASSPHRASE, "-f", key], check=True)
            assert said(reach, host, key=str(key) if named else None) == "root"
        assert refused(reach, host, key=str(key)).code == "KEY_LOCKED"


def test_an_agent_is_never_forwarded(reach: Reach, hosts: SharedHosts, user: User) -> None:
    user.configure("Host *\n  ForwardAgent yes")
    with user.agent():
        output = said(reach, hosts(), "sh", "-c", 'echo "${SSH_AUTH_SOCK-unset}"')
    assert output == "unset"


def test_an_alias_of_the_configuration_is_enough(reach: Reach, user: User) -> None:
    with Sshd(user="ada") as host:
        user.configure(block("gpu?", host, f"IdentityFile {host.key}", "LogLevel QUIET"))
        nothing = {"user": None, "port": None, "key": None}
        assert said(reach, host, address="gpu1", **nothing) == "ada"
        assert reach.pins.read_text() == host.known_hosts()


@pytest.mark.parametrize("count", [1, 2])
def test_jump_hosts_are_gone_through_and_each_is_pinned(
    reach: Reach, hosts: SharedHosts, count: int
) -> None:
    hops = [hosts(user=name) for name in ("ada", "eve")[:count]]
    host = hosts()
    for hop in hops:
        hop.allow(host.key.with_suffix(".pub").read_text())
    jump = ",".join(f"{hop.user}@{hop.address}:{hop.port}" for hop in hops)
    output = said(reach, host, "sh", "-c", "echo $SSH_CONNECTION", jump=jump)
    assert output.endswith(f" {host.port}")
    assert sorted(reach.pins.read_text().splitlines(True)) == sorted(
        [hop.known_hosts() for hop in [*hops, host]]
    )
    used = [f"Accepted publickey for {hop.user}" in hop.log.read_text() for hop in hops]
    assert used == [True] * count


def test_jump_hosts_of_the_configuration_have_settings_of_their_own(
    reach: Reach, user: User, tmp_path: Path
) -> None:
    key = make_key(tmp_path / "outer")
    with Sshd(user="ada") as outer, Sshd() as host:
        outer.allow(key.with_suffix(".pub").read_text())
        user.configure(
            block("outer", outer, f"IdentityFile {key}", "IdentitiesOnly yes"),
            block("gpu1", host, f"IdentityFile {host.key}", "ProxyJump outer"),
        )
        nothing = {"user": None, "port": None, "key": None}
        assert said(reach, host, address="gpu1", **nothing) == "root"
        assert "Accepted publickey for ada" in outer.log.read_text()


def test_a_jump_host_with_another_key_is_refused(reach: Reach, hosts: SharedHosts) -> None:
    host = hosts()
    with Sshd(user="ada") as jump:
        jump.allow(host.key.with_suffix(".pub").read_text())
        way = f"ada@{jump.address}:{jump.port}"
        said(reach, host, jump=way)
        first = fingerprint(jump)
        jump.rotate_host_key()
        error = refused(reach, host, jump=way)
        assert error.code == "HOST_KEY_CHANGED"
        assert "jump host" in error.message
        assert first in error.message
        assert fingerprint(jump) in error.message


def test_a_host_behind_a_jump_host_with_another_key_is_refused(
    reach: Reach, hosts: SharedHosts
) -> None:
    jump = hosts()
    with Sshd() as host:
        jump.allow(host.key.with_suffix(".pub").read_text())
        way = f"root@{jump.address}:{jump.port}"
        said(reach, host, jump=way)
        host.rotate_host_key()
        error = refused(reach, host, jump=way)
        assert error.code == "HOST_KEY_CHANGED"
        assert fingerprint(host) in error.message


def test_the_error_names_the_hop_that_is_unreachable_or_refuses(
    reach: Reach, hosts: SharedHosts, tmp_path: Path
) -> None:
    host, other_key = hosts(), make_key(tmp_path / "other")
    nowhere = free_port("127.0.0.1")
    jump = f"root@{host.address}:{host.port}"
    gone = refused(reach, host, jump=f"root@127.0.0.1:{nowhere}")
    assert (gone.code, gone.retryable) == ("HOST_UNREACHABLE", True)
    assert f"jump host 127.0.0.1 (root@127.0.0.1:{nowhere})" in gone.message
    beyond = refused(reach, host, jump=jump, port=nowhere)
    assert beyond.code == "HOST_UNREACHABLE"
    assert f"gpu1 (root@127.0.0.1:{nowhere})" in beyond.message
    unknown = refused(reach, host, jump=jump, address="nobody.invalid")
    assert unknown.code == "HOST_UNREACHABLE"
    assert "nobody.invalid" in unknown.message
    shut = refused(reach, host, jump=jump, key=str(other_key))
    assert shut.code == "AUTH_FAILED"
    assert "jump host" in shut.message


def test_a_proxy_command_of_the_configuration_is_used(
    reach: Reach, hosts: SharedHosts, user: User
) -> None:
    host = hosts()
    used = user.home / "used"
    relay = (
        f"'{sys.executable}' -c \"import socket,sys,threading,os;open('{used}','w').close();"
        "s=socket.create_connection((sys.argv[1],int(sys.argv[2])));"
        "threading.Thread(target=lambda:[s.sendall(b) for b in iter(lambda:os.read(0,65536),b'')],"
        "daemon=True).start();"
        "[os.write(1,b) for b in iter(lambda:s.recv(65536),b'')]\" %h %p"
    )
    user.configure(block("gpu1", host, f"ProxyCommand {relay}"))
    assert said(reach, host, address="gpu1", user=None, port=None) == "root"
    assert used.exists()
