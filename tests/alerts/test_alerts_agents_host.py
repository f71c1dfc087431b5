"""A host that an agent added is given no destination's address, which is a secret."""

from __future__ import annotations

from pathlib import Path

from support.alerts.webhook_receiver import Receiver
from support.sync.followed_run import FakeRun

from trainmaster.alerts.rules import alerts_of
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.workspace import Workspace


def test_the_alerts_of_an_agents_host_are_sent_from_here(
    workspace: Workspace, tmp_path: Path, receiver: Receiver
) -> None:
    hook = f"ops: {{kind: webhook, url: '{receiver.url}', sender: box}}"
    workspace.home.settings.write_text(f"destinations: {{{hook}}}\n")
    run_id = "followed-aaaaaa"
    workspace.control.put_host(HostRecord("gpu1", "127.0.0.1"), 1.0)
    FakeRun(workspace, tmp_path / "runs" / run_id, "gpu1")
    run = workspace.control.run(run_id)
    assert "box" in {row.sender for row in alerts_of(workspace, run)}
    workspace.control.put_host(HostRecord("gpu1", "127.0.0.1", by_agent=True), 2.0)
    assert {row.sender for row in alerts_of(workspace, run)} == {"operator"}
