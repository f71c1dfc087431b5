"""Alerts that a host sends, over SSH, even if the client is killed or cut off."""

from __future__ import annotations

import stat

import pytest
from support.alerts.webhook_receiver import Receiver
from support.backends.ssh_hosts import Sshd
from support.host.foreign_trainings import lines, writing
from support.runs.running_run import CommandLine, holding, wait_until

pytestmark = pytest.mark.slow

SECRET = b"very-secret-path"


def test_a_host_sends_while_the_client_is_killed_and_cut_off(
    remote: CommandLine, sshd: Sshd, receiver: Receiver
) -> None:
    (remote.home / "settings.yaml").write_text(
        f"destinations: {{ops: {{kind: webhook, url: '{receiver.url}', defaults: false}}}}\n"
    )
    log = sshd.home / "train.log"
    with writing(log) as training:
        training.say(lines(0, 8))
        run = remote("attach", "--host", "box", "--log", str(log))["run_id"]
        added = remote("alerts", "add", run, "--when", "loss < 3.95 for 2", "--name", "low")
        assert added["alert"]["sender"] == "box"
        folder = remote.folder(run)
        assert "pending" in added or folder.alerts.exists()

        def is_delivered() -> bool:
            if not folder.alerts.exists():
                remote("alerts", "list", run)  # which maintains the run, too
            return folder.alerts.exists()

        wait_until(is_delivered, "the host has the addresses")
        assert stat.S_IMODE(folder.alerts.stat().st_mode) == 0o600
        waiting = remote.start("wait", run, "--timeout", "240", "--json")
        remote("wait", run, "--until", "step:7", "--timeout", "240")
        waiting.kill()
        waiting.communicate()
        sshd.halt()
        training.say(lines(8, 40))
        wait_until(lambda: receiver.of("low"), "the alert", 90.0)
        sshd.start()
    remote("wait", run, "--until", "end", "--timeout", "240")
    wait_until(lambda: not folder.alerts.exists(), "the end of the addresses")
    [message] = remote("alerts", "list", run)["messages"]
    assert (message["sender"], message["phase"]) == ("box", "sent")
    assert {body["id"] for body in receiver.taken} == {message["id"]}
    assert (receiver.taken[0]["host"], receiver.taken[0]["step"]) == ("box", 27)
    assert SECRET not in folder.journal.read_bytes()
    assert holding(remote.home / "mirror", SECRET) == []
