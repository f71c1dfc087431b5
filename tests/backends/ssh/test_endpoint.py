"""From a record and the user's OpenSSH configuration to the way to a host."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from trainmaster.backends.ssh.endpoint import (
    Address,
    Hop,
    find_endpoint,
    parse_address,
    parse_jumps,
)
from trainmaster.errors.errors import TrainmasterError, UsageError
from trainmaster.store.host_record import HostRecord


class User:
    """A user's home with an OpenSSH configuration and keys."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {"HOME": str(home)}
        (home / ".ssh").mkdir(parents=True)

    def configure(self, text: str) -> None:
        (self.home / ".ssh" / "config").write_text(text)

    def key(self, name: str) -> Path:
        path = self.home / ".ssh" / name
        path.write_text("a key")
        return path

    def hops(self, address: str, **known: object) -> tuple[Hop, ...]:
        record = HostRecord("gpu1", address, **known)  # type: ignore[arg-type]
        return find_endpoint(record, self.environment).hops

    def hop(self, address: str, **known: object) -> Hop:
        return self.hops(address, **known)[-1]


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path / "home")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("gpu1", Address("gpu1")),
        ("ann@gpu1.example", Address("gpu1.example", "ann")),
        ("ann@10.0.0.7:2222", Address("10.0.0.7", "ann", 2222)),
        ("[::1]:22", Address("::1", None, 22)),
        ("ann@[fe80::1%eth0]", Address("fe80::1%eth0", "ann")),
        ("2001:db8::7", Address("2001:db8::7")),
        ("ssh://ann@gpu1:2222", Address("gpu1", "ann", 2222)),
        ("ann@corp.example@gpu1", Address("gpu1", "ann@corp.example")),
        ("abc123-64410cd5@ssh.runpod.io", Address("ssh.runpod.io", "abc123-64410cd5")),
        ("my_box", Address("my_box")),
    ],
)
def test_addresses_are_taken_apart(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "ann@",
        "@gpu1",
        "-oProxyCommand=touch",
        "ann@-oProxyCommand=touch",
        "-ann@gpu1",
        "gpu1 rm",
        "gpu1\n",
        "gpu1\x00",
        "gpu1;touch",
        "$(touch)",
        "`touch`@gpu1",
        "ann'@gpu1",
        "ann@gpu1|cat",
        "ann%h@gpu1",
        "gpu*",
        "../gpu1",
        "[gpu1]:22",
        "[::1",
        "[::1]22",
        "fe80::1%eth0;x",
        "gpü1",
    ],
)
def test_what_a_shell_or_program_could_take_for_something_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_address(text)
    assert refused.value.code == "UNSAFE_NAME"


@pytest.mark.parametrize("text", ["gpu1:", "gpu1:0", "gpu1:65536", "gpu1:x", "[::1]:²", "gpu1:-1"])
def test_a_port_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_address(text)
    assert refused.value.code == "BAD_ARGUMENT"


def test_jump_hosts_are_a_list() -> None:
    assert parse_jumps("ann@a:2222,b") == [Address("a", "ann", 2222), Address("b")]
    assert parse_jumps("none") == []


def test_without_a_configuration_the_record_and_the_usual_keys_count(user: User) -> None:
    usual = user.key("id_ed25519")
    hop = user.hop("gpu1.example")
    assert (hop.host, hop.port, hop.user) == ("gpu1.example", 22, getpass.getuser())
    assert (hop.identities, hop.chosen, hop.identities_only) == ((usual,), False, False)
    assert hop.pin_name == "gpu1.example"
    assert user.hop("GPU1.Example", port=2222).pin_name == "[gpu1.example]:2222"
    assert user.hop("[::1]").shown == f"{getpass.getuser()}@[::1]:22"


def test_an_alias_is_resolved(user: User) -> None:
    key, user_key = user.key("cloud"), user.key("own")
    user.configure(
        f"Host gpu*\n  HostName 10.0.0.7\n  User ann\n  Port 2222\n  IdentityFile ~/.ssh/cloud\n"
        f"  IdentityFile={user_key}\n  IdentitiesOnly yes\nHost *\n  User nobody\n"
    )
    hop = user.hop("gpu1")
    assert (hop.named, hop.shown) == ("gpu1", "ann@10.0.0.7:2222")
    assert (hop.identities, hop.chosen, hop.identities_only) == ((key, user_key), True, True)
    assert user.hop("other").user == "nobody"


def test_the_record_comes_before_the_configuration(user: User) -> None:
    user.configure("Host gpu1\n  User ann\n  Port 2222\n  IdentityFile ~/.ssh/cloud\n")
    user.key("cloud")
    own = user.key("own")
    hop = user.hop("gpu1", user="bob", port=2022, key="~/.ssh/own")
    assert (hop.user, hop.port, hop.identities) == ("bob", 2022, (own,))
    assert hop.identities_only
    assert user.hop("eve@gpu1:22").shown == "eve@gpu1:22"


def test_match_and_include_count(user: User) -> None:
    (user.home / ".ssh" / "more").write_text("Host gpu1\n  HostName 10.0.0.7\n")
    included = user.home / ".ssh" / "more"
    user.configure(
        f'Include {included}\nMatch host 10.0.0.7 user ann\n  Port 2222\nMatch exec "false"\n'
        "  Port 3333\n"
    )
    assert user.hop("gpu1", user="ann").shown == "ann@10.0.0.7:2222"
    assert user.hop("gpu1", user="bob").shown == "bob@10.0.0.7:22"


def test_jump_hosts_are_hops_in_their_order_each_with_its_own_settings(user: User) -> None:
    key = user.key("bastion")
    user.configure(
        "Host bastion\n  HostName 10.0.0.1\n  User eve\n  IdentityFile ~/.ssh/bastion\n"
        "Host gpu1\n  HostName 10.0.0.7\n  User ann\n  ProxyJump bastion,bob@inner:2222\n"
    )
    assert [hop.shown for hop in user.hops("gpu1")] == [
        "eve@10.0.0.1:22",
        "bob@inner:2222",
        "ann@10.0.0.7:22",
    ]
    assert user.hops("gpu1")[0].identities == (key,)
    assert [hop.host for hop in user.hops("gpu1", jump="other")] == ["other", "10.0.0.7"]
    assert len(user.hops("gpu1", jump="none")) == 1


def test_a_first_jump_host_has_jump_hosts_of_its_own(user: User) -> None:
    user.configure(
        "Host bastion\n  ProxyJump outer\nHost inner\n  ProxyJump never\n"
        "Host gpu1\n  ProxyJump bastion,inner\n"
    )
    assert [hop.host for hop in user.hops("gpu1")] == ["outer", "bastion", "inner", "gpu1"]


def test_jump_hosts_in_a_circle_are_refused(user: User) -> None:
    user.configure("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    with pytest.raises(TrainmasterError) as refused:
        user.hops("a")
    assert refused.value.code == "HOST_UNREACHABLE"
    assert "itself" in refused.value.message


def test_the_agent_is_the_environments_unless_the_configuration_names_one(user: User) -> None:
    user.environment["SSH_AUTH_SOCK"] = "/run/agent"
    user.environment["OTHER"] = "/run/other"
    user.configure(
        "Host none\n  IdentityAgent none\nHost own\n  IdentityAgent ~/.ssh/agent\n"
        "Host named\n  IdentityAgent $OTHER\n"
    )
    assert user.hop("gpu1").agent == "/run/agent"
    assert user.hop("none").agent is None
    assert user.hop("own").agent == str(user.home / ".ssh" / "agent")
    assert user.hop("named").agent == "/run/other"


@pytest.mark.parametrize("text", ["Host gpu1\n  Port many\n", "Host gpu1\n  User 'ann\n"])
def test_a_configuration_that_cant_be_read_is_named(user: User, text: str) -> None:
    user.configure(text)
    with pytest.raises(TrainmasterError) as refused:
        user.hop("gpu1")
    assert str(user.home / ".ssh" / "config") in refused.value.message


def test_a_configuration_is_held_to_the_same_names(user: User) -> None:
    user.configure("Host gpu1\n  HostName -oProxyCommand=touch\nHost gpu2\n  User 'a;b'\n")
    for alias in ("gpu1", "gpu2"):
        with pytest.raises(UsageError) as refused:
            user.hop(alias)
        assert refused.value.code == "UNSAFE_NAME"


def test_a_key_of_the_record_that_is_not_there_is_named(user: User) -> None:
    with pytest.raises(TrainmasterError) as refused:
        user.hop("gpu1", key="~/.ssh/lost")
    assert refused.value.code == "AUTH_FAILED"
    assert str(user.home / ".ssh" / "lost") in refused.value.message


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("[2001:DB8::0:1]:22", "2001:db8::1"),
        ("127.1", "127.0.0.1"),
        ("0x7f.0.0.1", "127.0.0.1"),
        ("GPU1.example.", "gpu1.example"),
        ("10.0.0.5", "10.0.0.5"),
        ("gpu1:2222", "[gpu1]:2222"),
    ],
)
def test_an_address_has_one_pin_however_it_is_spelt(user: User, spelt: str, name: str) -> None:
    assert user.hop(spelt).pin_name == name


def test_known_hosts_files_and_an_alias_come_from_the_configuration(user: User) -> None:
    user.configure("Host gpu1\n  HostKeyAlias cluster\n  UserKnownHostsFile ~/other /etc/known\n")
    hop = user.hop("gpu1")
    assert hop.known_as == "cluster"
    assert hop.known_hosts[:2] == (user.home / "other", Path("/etc/known"))
    assert user.hop("gpu2").known_hosts[0] == user.home / ".ssh" / "known_hosts"
    assert Path("/etc/ssh/ssh_known_hosts") in hop.known_hosts
