"""One suite for every transport: what the user's own known_hosts files say of a host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.backends.reachability import Reach, SharedHosts, User, said
from support.backends.ssh_hosts import Sshd, make_key

from trainmaster.errors.errors import HostError


def _known(user: User, *lines: str) -> Path:
    path = user.home / ".ssh" / "known_hosts"
    path.write_text("".join(f"{line.strip()}\n" for line in lines))
    return path


def _key(folder: Path) -> str:
    """Another machine's public key, as known_hosts files have it."""
    public = make_key(folder / "another").with_suffix(".pub").read_text()
    return " ".join(public.split()[:2])


def _refused(reach: Reach, host: Sshd) -> HostError:
    accepted = host.log.read_text().count("Accepted")
    with pytest.raises(HostError) as error:
        said(reach, host)
    assert error.value.code == "HOST_KEY_CHANGED"
    assert not reach.pins.exists()
    assert host.log.read_text().count("Accepted") == accepted
    return error.value


def _plain(path: Path) -> None:
    pass


def _hashed(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", path], check=True, capture_output=True)


@pytest.mark.parametrize("hide", [_plain, _hashed])
def test_a_key_that_ssh_would_refuse_is_refused_at_first_use(
    reach: Reach,
    hosts: SharedHosts,
    user: User,
    tmp_path: Path,
    hide: Callable[[Path], None],
) -> None:
    host = hosts()
    name = host.known_hosts().split()[0]
    path = _known(user, f"{name} {_key(tmp_path)}")
    hide(path)
    path.write_text(f"# a comment\na line that no program understands\n{path.read_text()}")
    error = _refused(reach, host)
    assert str(path) in error.message
    assert "ssh-keygen -R" in error.fix
    _known(user, host.known_hosts())
    assert said(reach, host) == "root"
    assert reach.pins.read_text() == host.known_hosts()


def test_a_revoked_key_is_refused(reach: Reach, hosts: SharedHosts, user: User) -> None:
    _known(user, f"@revoked {hosts().known_hosts()}")
    _refused(reach, hosts())


def test_a_name_without_a_port_says_nothing_of_other_ports(
    reach: Reach, hosts: SharedHosts, user: User, tmp_path: Path
) -> None:
    _known(user, f"{hosts().address} {_key(tmp_path)}")
    assert said(reach, hosts()) == "root"


def test_a_plain_key_is_refused_where_only_a_certificate_is_expected(
    reach: Reach, hosts: SharedHosts, user: User, tmp_path: Path
) -> None:
    name = hosts().known_hosts().split()[0]
    _known(user, f"@cert-authority {name} {_key(tmp_path)}")
    _refused(reach, hosts())
    _known(user, f"@cert-authority * {_key(tmp_path)}")  # says nothing of this host
    assert said(reach, hosts()) == "root"


def test_a_certificate_of_a_known_authority_is_accepted(
    reach: Reach, user: User, tmp_path: Path
) -> None:
    authority = make_key(tmp_path / "authority")
    with Sshd() as host:
        public = host.root / "host_ed25519.pub"
        signing = ["-I", "host", "-h", "-n", host.address, "-V", "+1d", str(public)]
        subprocess.run(["ssh-keygen", "-q", "-s", str(authority), *signing], check=True)
        host.halt()
        host._options["HostCertificate"] = str(host.root / "host_ed25519-cert.pub")
        host.start()
        name = host.known_hosts().split()[0]
        key = " ".join(authority.with_suffix(".pub").read_text().split()[:2])
        _known(user, f"@cert-authority {name} {key}")
        if reach.transport == "paramiko":  # it knows no host certificates
            _refused(reach, host)
        else:
            assert said(reach, host) == "root"


def test_another_key_at_an_address_of_another_host_is_refused(reach: Reach, tmp_path: Path) -> None:
    first = Reach(reach.transport, tmp_path / "hosts" / "gpu1" / "known_hosts")
    second = Reach(reach.transport, tmp_path / "hosts" / "gpu2" / "known_hosts")
    with Sshd() as host:
        assert said(first, host) == "root"
        assert said(second, host) == "root"
        os.unlink(second.pins)
        host.rotate_host_key()
        error = _refused(second, host)
        assert "for the host gpu1 at the same address" in error.message
        assert "hosts trust gpu1" in error.fix
