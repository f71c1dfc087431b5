"""Configuration of the system's ssh, and interpretation of its messages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trainmaster.backends.ssh.endpoint import Endpoint, Hop
from trainmaster.backends.ssh.openssh_config import KnownHop, Prompts, config_file, hop_config
from trainmaster.backends.ssh.openssh_master import Failure, find_failure

PROMPTS = ("batchmode", "passwordauthentication", "kbdinteractiveauthentication")


def settings(folder: Path, endpoint: Endpoint, manners: Prompts | None = None) -> dict[str, str]:
    """What ssh itself makes of the last hop's configuration."""
    place = len(endpoint.jumps)
    text = hop_config(
        endpoint, place, folder, known_hop=KnownHop(True, False), manners=manners or Prompts()
    )
    config_file(folder, place).write_text(text)
    command = ["ssh", "-G", "-F", config_file(folder, place), "--", endpoint.target.named]
    output = subprocess.check_output(command, text=True)
    return dict(line.split(" ", 1) for line in output.splitlines() if " " in line)


def endpoint_of(*hops: Hop, config: Path | None = None) -> Endpoint:
    return Endpoint("box", hops[-1], hops[:-1], Path("/nowhere"), config)


def test_nothing_but_the_pins_judges_a_key_and_nothing_is_forwarded(tmp_path: Path) -> None:
    user = tmp_path / "config"
    user.write_text(
        "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  ForwardAgent yes\n"
        "  VerifyHostKeyDNS yes\n  UpdateHostKeys yes\n  LocalForward 9999 localhost:9\n"
        "  ControlPath /tmp/mine\n  RemoteCommand top\n  Ciphers aes256-ctr\n  HostKeyAlias other\n"
    )
    known = settings(tmp_path, endpoint_of(Hop("gpu1", "10.0.0.7", 2222, "ann"), config=user))
    assert known["stricthostkeychecking"] == "true"
    assert known["userknownhostsfile"] == str(tmp_path / "known_hosts")
    assert known["globalknownhostsfile"] == "/dev/null"
    assert known["hostkeyalias"] == "[10.0.0.7]:2222"
    assert known["clearallforwardings"] == "yes"
    assert known["ciphers"] == "aes256-ctr"
    off = ("forwardagent", "verifyhostkeydns", "updatehostkeys", "controlmaster")
    assert {known[name] for name in off} == {"no", "false"}
    assert "remotecommand" not in known
    assert "controlpath" not in known


def test_nobody_is_asked_without_a_terminal_and_servers_get_no_passphrase(tmp_path: Path) -> None:
    endpoint = endpoint_of(Hop("gpu1", "10.0.0.7", 22, "ann"))
    silent = settings(tmp_path, endpoint)
    assert silent["batchmode"] == "yes"
    passphrase = settings(tmp_path, endpoint, Prompts(passphrase=True))
    assert [passphrase[name] for name in PROMPTS] == ["no", "no", "no"]
    terminal = settings(tmp_path, endpoint, Prompts(terminal=True))
    assert [terminal[name] for name in PROMPTS] == ["no", "yes", "yes"]


def test_names_and_paths_of_every_kind_arrive(tmp_path: Path) -> None:
    folder = tmp_path / "a folder 100%"
    folder.mkdir()
    key = folder / "own key"
    hop = Hop("fe80::1", "fe80::1%eth0", 22, "ann", (key,), agent=str(folder / "agent"))
    known = settings(folder, endpoint_of(hop))
    assert known["hostname"] == "fe80::1%eth0"
    assert known["hostkeyalias"] == "fe80::1%eth0"
    doubled = str(folder).replace("%", "%%")  # as ssh shows what it has yet to expand
    assert known["identityfile"] in (str(key), f"{doubled}/own key")
    assert known["identityagent"] in (hop.agent, f"{doubled}/agent")


def test_a_jump_host_is_reached_under_a_configuration_of_its_own(tmp_path: Path) -> None:
    hops = [Hop(name, f"{name}.example", 22, "ann") for name in ("outer", "inner", "gpu1")]
    known = settings(tmp_path, endpoint_of(*hops))
    before = f"-F {tmp_path}/1.config -E {tmp_path}/1.log"
    assert known["proxycommand"] == f"ssh {before} -W [%h]:%p -- inner"
    assert "proxycommand" not in settings(tmp_path, endpoint_of(hops[0]))


@pytest.mark.parametrize(
    ("logs", "failure"),
    [
        (
            ["ssh: connect to host a port 22: Connection refused\n"],
            Failure("unreachable", 0, "connect to host a port 22: Connection refused"),
        ),
        (
            ["Warning: Permanently added 'a' (ED25519) to the list of known hosts.\n"
             "ann@a: Permission denied (publickey).\n"],
            Failure("authentication_refused", 0, "ann@a: Permission denied (publickey)."),
        ),
        (
            ["The fingerprint for the ED25519 key sent by the remote host is\nSHA256:a+b/c.\n"
             "Host key verification failed.\n"],
            Failure("key_changed", 0, "Host key verification failed.", "ED25519", "SHA256:a+b/c"),
        ),
        (
            ["No RSA host key is known for a and you have requested strict checking.\n"],
            Failure(
                "key_changed",
                0,
                "No RSA host key is known for a and you have requested strict checking.",
            ),
        ),
        (
            ["Unable to negotiate with 1.2.3.4 port 22: no matching cipher found.\n"],
            Failure(
                "no_common_algorithm",
                0,
                "Unable to negotiate with 1.2.3.4 port 22: no matching cipher found.",
            ),
        ),
        (
            ["no such identity: /x: No such file or directory\n",
             "Connection timed out during banner exchange\n"],
            Failure("unreachable", 1, "Connection timed out during banner exchange"),
        ),
        (
            ["", "ann@b: Permission denied (publickey).\n", "Connection closed by UNKNOWN\n"],
            Failure("authentication_refused", 1, "ann@b: Permission denied (publickey)."),
        ),
        (
            ["channel 0: open failed: connect failed: Connection refused\n"
             "stdio forwarding failed\n", "Connection closed by UNKNOWN port 65535\n"],
            Failure("unreachable", 1, "Connection refused"),
        ),
    ],
)  # fmt: skip
def test_the_first_hop_that_complains_is_the_one(logs: list[str], failure: Failure) -> None:
    assert find_failure(logs, "") == failure


def test_standard_error_is_used_if_no_log_has_the_reason() -> None:
    failure = find_failure([""], "/x/0.config: line 3: Bad configuration option: nonsense\r\n")
    assert (failure.cause, failure.place) == ("unreachable", 0)
    assert "nonsense" in failure.reason
