"""The root that is made on a host is its user's alone, whatever the umask of its shell."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

from support.backends.ssh_hosts import Sshd

from trainmaster.backends.hosts.ssh import SshHost
from trainmaster.home.paths import Home


def test_others_of_a_host_can_enter_neither_its_root_nor_read_a_secret_meanwhile(
    tmp_path: Path,
) -> None:
    with Sshd(user="ada", rc="umask 000\n") as sshd:
        host = SshHost(sshd.record("gpu1"), Home(tmp_path / "home"))

        async def work() -> None:
            await host.place_runtime()
            await host.put_file(f"{await host.root()}/.secrets.json", b"{}", mode=0o600)
            await host.disconnect()

        asyncio.run(work())
        root = sshd.home / "trainmaster"
        folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
        assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
        assert stat.S_IMODE((root / ".secrets.json").stat().st_mode) == 0o600
