"""Parsing of key files, and conversion of keys for each library."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
from itertools import product
from pathlib import Path

import asyncssh
import pytest
from support.backends.ssh_hosts import make_key
from support.runs.running_run import run_async
from support.session.tiers import at_length

from trainmaster.backends.ssh.endpoint import Endpoint, Hop
from trainmaster.backends.ssh.paramiko_connection import paramiko_key
from trainmaster.backends.ssh.private_keys import (
    PASSPHRASE_VARIABLE,
    OpenKey,
    collect_keys,
    locked_keys,
    needs_unlocking,
    read_identity,
    unlock,
)
from trainmaster.errors.errors import HostError

_FORMATS = ("RFC4716", "PEM", "PKCS8")


def public_of(key: Path) -> bytes:
    return base64.b64decode(key.with_suffix(".pub").read_text().split()[1])


def endpoint_of(*keys: Path) -> Endpoint:
    return Endpoint("box", Hop("box", "box", 22, "ann", keys, chosen=True), (), Path("/nowhere"))


@pytest.mark.parametrize(
    ("kind", "style"),
    # An ed25519 key has but one format.
    [
        ("ed25519", ""),
        *product(["ecdsa"], _FORMATS),
        *at_length(*product(["rsa"], _FORMATS)),
    ],
)
@pytest.mark.parametrize("passphrase", ["", "open sesame"])
def test_a_key_file_shows_its_public_key_and_whether_it_is_locked(
    tmp_path: Path, kind: str, style: str, passphrase: str
) -> None:
    key = make_key(tmp_path / "key", passphrase, kind)
    if style:
        change = ["-p", "-m", style, "-P", passphrase, "-N", passphrase]
        subprocess.run(["ssh-keygen", "-q", *change, "-f", key], check=True)
    identity = read_identity(key)
    assert identity is not None
    assert (identity.public, identity.encrypted) == (public_of(key), bool(passphrase))
    found = run_async(lambda: collect_keys(endpoint_of(key), {}))
    assert (locked_keys(found) == [key], needs_unlocking(found)) == (bool(passphrase),) * 2
    opened = run_async(lambda: collect_keys(endpoint_of(key), {PASSPHRASE_VARIABLE: passphrase}))
    assert [of_hop.files[0].key.public_data for of_hop in opened.values()] == [public_of(key)]


@pytest.mark.parametrize(
    "text", ["", "no key\n", "-----BEGIN OPENSSH PRIVATE KEY-----\n*\n", "a b"]
)
def test_a_file_that_is_no_key_is_passed_over(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    found = run_async(lambda: collect_keys(endpoint_of(path, tmp_path / "none"), {}))
    assert [(of_hop.files, of_hop.locked) for of_hop in found.values()] == [((), ())]


def test_a_public_key_stands_for_the_agents_private_one(tmp_path: Path) -> None:
    key = make_key(tmp_path / "key")
    identity = read_identity(key.with_suffix(".pub"))
    assert identity is not None
    assert (identity.public, identity.data) == (public_of(key), None)


def test_without_a_terminal_a_locked_key_stays_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    key = make_key(tmp_path / "key", "open sesame")
    with pytest.raises(HostError) as refused:
        run_async(lambda: unlock([key], {}))
    assert refused.value.code == "KEY_LOCKED"
    assert str(key) in refused.value.fix


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp521"])
def test_every_key_is_the_same_to_paramiko(kind: str) -> None:
    for _ in range(40):  # of those without a comment, it reads some as empty
        key = asyncssh.generate_private_key(kind)
        assert paramiko_key(OpenKey(Path("key"), key, None)).asbytes() == key.public_data
