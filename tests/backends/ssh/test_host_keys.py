"""Pinned host keys: first use, change, damage, and OpenSSH's own reading of the file."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from pathlib import Path

import pytest
from support.backends.ssh_hosts import make_key

from trainmaster.backends.ssh.host_keys import Pin, Pins, pin_of
from trainmaster.errors.errors import HostError

pytestmark = pytest.mark.attack


@pytest.fixture
def pins(tmp_path: Path) -> Pins:
    return Pins(tmp_path / "hosts" / "gpu1" / "known_hosts", "gpu1")


def key_of(folder: Path, kind: str = "ed25519") -> bytes:
    public = make_key(folder / f"key_{kind}", kind=kind).with_suffix(".pub").read_text()
    return base64.b64decode(public.split()[1])


def test_a_fingerprint_is_what_ssh_keygen_says(tmp_path: Path) -> None:
    pin = pin_of("gpu1.example", key_of(tmp_path))
    output = subprocess.check_output(
        ["ssh-keygen", "-l", "-f", tmp_path / "key_ed25519"], text=True
    )
    assert pin.fingerprint == output.split()[1]
    assert pin.kind == "ssh-ed25519"


@pytest.mark.parametrize("hop", ["gpu1.example", "[gpu1.example]:2222", "::1", "[::1]:2222"])
def test_a_first_key_is_pinned_so_that_openssh_finds_it(
    pins: Pins, hop: str, tmp_path: Path
) -> None:
    pin = pin_of(hop, key_of(tmp_path))
    pins.accept(pin, "gpu1")
    pins.accept(pin, "gpu1")
    assert pins.all() == [pin]
    assert pins.path.stat().st_mode & 0o777 == 0o600
    found = subprocess.check_output(["ssh-keygen", "-F", hop, "-f", pins.path], text=True)
    assert pin.line in found


def test_another_key_is_refused_with_both_fingerprints_and_accepted_once_forgotten(
    pins: Pins, tmp_path: Path
) -> None:
    first, second = (pin_of("[a]:2222", key_of(tmp_path)) for _ in range(2))
    pins.accept(first, "gpu1")
    with pytest.raises(HostError) as refused:
        pins.accept(second, "gpu1")
    assert refused.value.code == "HOST_KEY_CHANGED"
    assert first.fingerprint in refused.value.message
    assert second.fingerprint in refused.value.message
    assert "trainmaster hosts trust gpu1" in refused.value.fix
    assert pins.all() == [first]
    assert pins.forget() == [first]
    pins.accept(second, "gpu1")
    assert pins.all() == [second]


def test_a_key_of_another_kind_is_another_key(pins: Pins, tmp_path: Path) -> None:
    pins.accept(pin_of("a", key_of(tmp_path)), "gpu1")
    with pytest.raises(HostError, match="ecdsa"):
        pins.accept(pin_of("a", key_of(tmp_path, "ecdsa")), "gpu1")


def test_each_hop_has_pins_of_its_own(pins: Pins, tmp_path: Path) -> None:
    jump, target = (pin_of(hop, key_of(tmp_path)) for hop in ("jump", "[target]:2222"))
    pins.accept(jump, "gpu1's jump host jump")
    pins.accept(target, "gpu1")
    assert pins.of("jump") == [jump]
    assert pins.of("[target]:2222") == [target]
    assert pins.of("target") == []


def test_the_pinned_kind_is_asked_for_first_and_no_other_is_left_out(
    pins: Pins, tmp_path: Path
) -> None:
    pins.accept(pin_of("a", key_of(tmp_path, "rsa")), "gpu1")
    offered = ["ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-256", "rsa-sha2-512"]
    assert pins.order("a", offered) == [*offered[2:], *offered[:2]]
    assert pins.order("b", offered) == offered


@pytest.mark.parametrize("line", ["a ssh-ed25519", "a", "a ssh-ed25519 no*base64", "{}"])
def test_a_damaged_file_lets_nobody_in_until_it_is_forgotten(
    pins: Pins, line: str, tmp_path: Path
) -> None:
    pins.path.parent.mkdir(parents=True)
    pins.path.write_text(f"# a remark\n\n{line}\n")
    pin = pin_of("a", key_of(tmp_path))
    with pytest.raises(HostError, match="damaged"):
        pins.accept(pin, "gpu1")
    pins.forget()
    pins.accept(pin, "gpu1")


def test_several_names_on_a_line_are_each_pinned(pins: Pins, tmp_path: Path) -> None:
    key = key_of(tmp_path)
    pins.path.parent.mkdir(parents=True)
    pins.path.write_text(f"a,[b]:22 ssh-ed25519 {base64.b64encode(key).decode()} a remark\n")
    assert pins.all() == [Pin("a", "ssh-ed25519", key), Pin("[b]:22", "ssh-ed25519", key)]


def test_of_many_at_first_use_one_pins_and_no_line_is_lost(pins: Pins, tmp_path: Path) -> None:
    key = key_of(tmp_path)
    wanted = [pin_of(f"hop{number}", key) for number in range(12)]
    threads = [threading.Thread(target=pins.accept, args=(pin, "gpu1")) for pin in wanted * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(pins.all(), key=str) == sorted(wanted, key=str)
    assert sorted(os.listdir(pins.path.parent)) == [".known_hosts.lock", "known_hosts"]
