"""What a run's sessions are given as data sets, where that goes wrong."""

from __future__ import annotations

import asyncio

import pytest
from support.kaggle.stage import RUN, Stage

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.backends.kaggle.client import SourcesLeftOutError
from trainmaster.errors.errors import HostError
from trainmaster.sync.transfer_progress import TransferProgress, write_progress
from trainmaster.sync.workspace import Workspace


@pytest.fixture
def stage(workspace: Workspace) -> Stage:
    return Stage(workspace)


def test_data_sets_that_kaggle_left_out_are_sent_again(stage: Stage) -> None:
    stage.place(data=True)
    assert (stage.start(), stage.due) == (False, ["upload"])
    stage.send()
    sent = stage.workspace.control.kaggle.dataset("data/0123")
    progress = TransferProgress("upload", active=False, finished={"upload": 1})
    write_progress(stage.workspace.home, RUN, progress)
    assert (stage.due, sent is not None) == ([], True)
    stage.kaggle.left_out = (str(sent),)
    with pytest.raises(SourcesLeftOutError):
        stage.start()
    assert (stage.standing, stage.due) == (("queued", "kaggle_queue"), [])
    stage.kaggle.newest.end("error", "its data is not mounted")
    stage.follow()
    assert (stage.start(), stage.standing) == (False, ("queued", "data_set"))
    assert stage.due == ["upload"]
    stage.send()
    assert stage.start()
    assert stage.kaggle.newest.push.dataset_sources == (sent,)


def test_secrets_that_kaggle_left_out_are_sent_again_and_removed_with_the_run(stage: Stage) -> None:
    stage.place(secret="HF_TOKEN")
    assert stage.start()  # what had not been delivered is found in the home
    (secrets,) = stage.kaggle.newest.push.dataset_sources
    stage.kaggle.newest.end("error")
    stage.follow()
    stage.kaggle.left_out = (secrets,)
    with pytest.raises(SourcesLeftOutError):
        stage.start()
    stage.kaggle.newest.end("error")
    stage.follow()
    assert stage.start()
    assert stage.kaggle.newest.push.dataset_sources == (secrets,)
    assert stage.kaggle.removed == []
    stage.kaggle.newest.end("error")
    stage.follow()
    assert stage.standing[0] == "failed"
    assert stage.kaggle.removed == []  # reading removes nothing
    assert asyncio.run(stage.backend.withdraw_secrets(RUN))
    assert not asyncio.run(stage.backend.withdraw_secrets(RUN))
    assert [f"somebody/{slug}" for slug in stage.kaggle.removed] == [secrets]


def test_nothing_is_left_of_a_run_whose_first_push_is_refused(stage: Stage) -> None:
    stage.place(secret="HF_TOKEN")
    stage.kaggle.refused = "Verify your phone."
    with pytest.raises(HostError):
        stage.start()
    assert stage.workspace.control.forget_unplaced(RUN)
    asyncio.run(stage.backend.remove(RUN, ()))
    assert not stage.workspace.home.kaggle(RUN).exists()
    assert len(stage.kaggle.removed) == 1
    assert stage.workspace.control.kaggle.waiting(RUN) is None


def test_data_that_can_not_be_sent_fails_the_run_until_it_is_requested_again(stage: Stage) -> None:
    stage.place(data=True)
    assert not stage.start()
    asyncio.run(stage.backend.refuse_upload(RUN, 1, "The files of a.txt changed since the plan."))
    finished = {"upload": 1}
    write_progress(stage.workspace.home, RUN, TransferProgress("upload", finished=finished))
    stage.follow()
    assert stage.standing == ("failed", "unusable: The files of a.txt changed since the plan.")
    assert stage.view.record.closed and stage.kaggle.sessions == []
    stage.request(Desired(DesiredState.RUNNING, generation=2, why="resume"))
    assert (stage.start(), stage.standing) == (False, ("queued", "data_set"))
    assert stage.due == ["upload"]
    stage.send()
    assert stage.start()
