"""A run's data card: shown by name, and fetched with its other files."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs.running_run import LONGEST_S, run_async, small_spec

from trainer_runtime.core.inputs.data_card import DATA_CARD, PAGE
from trainmaster.answers.data_card import DataCardAnswer
from trainmaster.cli.views.blocks import view
from trainmaster.errors.errors import StateError
from trainmaster.runs.data.data_card import data_card
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.fetch import fetch
from trainmaster.runs.launch.launch import launch
from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.slow


async def complete(workspace: Workspace, spec: str) -> str:
    run = (await launch(workspace, spec)).run_id
    done = await wait_for_event(workspace, run, until=["completed"], timeout_s=LONGEST_S)
    assert done.event == "completed"
    return run


def test_a_run_s_card_is_shown_and_fetched_until_no_place_has_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = run_async(lambda: complete(workspace, small_spec(tmp_path, steps="2")))

    def shown() -> DataCardAnswer:
        return run_async(lambda: data_card(workspace, run))

    answer = shown()
    (source,) = answer.card["sources"]
    assert source["digest_of"] == "content" and len(source["sha256"]) == 64
    assert source["tokens"] > source["held_out_tokens"] > 0
    assert "- Licence: not given" in view(answer)
    fetched = run_async(lambda: fetch(workspace, run, "data_card.*", tmp_path / "fetched"))
    assert fetched.files == 2
    assert sorted(path.name for path in (tmp_path / "fetched").iterdir()) == [DATA_CARD, PAGE]
    placement = workspace.control.run(run).placement
    mirror = workspace.mirror.of(run, placement).root
    for root in (workspace.home.local_root / "runs" / run, mirror):
        assert shown() == answer
        (root / DATA_CARD).unlink()
    with pytest.raises(StateError) as raised:
        shown()
    assert raised.value.code == "NO_DATA_CARD"
