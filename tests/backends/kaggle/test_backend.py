"""Sessions of a run at Kaggle as this side goes about them, with a Kaggle that a test plays."""

from __future__ import annotations

import asyncio
import base64
import zlib

import pytest
from support.kaggle.fake_client import HOUR_S, FakeSession
from support.kaggle.stage import AGAIN, JOURNAL, RUN, STOPPED, Stage

from trainmaster.backends.kaggle.sessions import slug_of
from trainmaster.errors.errors import CloudError, HostError
from trainmaster.runs.launch.launch import launched
from trainmaster.runs.status.next_step import next_step
from trainmaster.store.control.kaggle import SessionRequest, SessionState
from trainmaster.sync.workspace import Workspace


@pytest.fixture
def stage(workspace: Workspace) -> Stage:
    return Stage(workspace)


def test_a_kernels_slug_is_its_runs_and_fits() -> None:
    assert slug_of("gpt-abc234") == "tm-gpt-abc234"
    assert slug_of("My_Model.v2-abc234") == "tm-my-model-v2-abc234"
    assert slug_of(f"{'x' * 60}-abc234") == f"tm-{'x' * 36}-abc234"
    assert slug_of("___-abc234") == "tm-abc234"


def test_a_session_is_pushed_once_and_its_log_becomes_the_mirror(stage: Stage) -> None:
    stage.place()
    assert stage.standing == ("queued", "between_sessions")
    session = stage.session()
    assert stage.standing == ("queued", "kaggle_queue")
    assert (session.push.slug, session.push.gpu) == (f"tm-{RUN}", True)
    assert (session.order.limit_s, session.push.timeout_s) == (12 * HOUR_S, 12 * HOUR_S)
    assert (session.order.previous, session.order.journal_bytes) == (None, 0)
    stage.emit(session, stage.begun())
    session.emit("attempts/1/train.log", 0, b"step 1\n")
    stage.follow()
    assert not stage.start()
    assert len(stage.kaggle.sessions) == 1
    assert stage.mirror.read(JOURNAL, 0, 1 << 20) == session.files[JOURNAL]
    assert stage.mirror.read("attempts/1/train.log", 0, 99) == b"step 1\n"
    assert stage.workspace.control.kaggle.newest(RUN).state is SessionState.RUNNING  # type: ignore[union-attr]
    assert stage.view.record.state.value == "running"


def test_the_next_session_continues_from_the_last_output(stage: Stage) -> None:
    stage.place()
    first = stage.session()
    stage.emit(first, stage.begun() + stage.over())
    stage.complete(first, step=10)
    assert stage.standing == ("queued", "between_sessions")
    second = stage.session()
    assert second.push.kernel_sources == (f"somebody/tm-{RUN}",)
    order = second.order
    assert (order.number, order.previous) == (2, f"tm-{RUN}")
    assert (order.journal_bytes, order.carried) == (len(first.files[JOURNAL]), None)


def test_what_the_log_lacked_is_taken_from_the_output(stage: Stage) -> None:
    stage.place()
    session = stage.session()
    journal = stage.begun() + stage.over()
    session.emit(JOURNAL, 0, journal[:100])
    session.emit("attempts/1/train.log", 0, b"one\ntwo\nthree\n")
    stage.follow()
    session.emit("attempts/1/train.log", 0, b"one\ntwo\nthree\n")  # repeated
    session.emit("attempts/1/train.log", 4, b"two\nthree\nfour\n")  # an overlap
    session.say('TM1 {"file":"attempts/1/train.log","at":19,"z":"damaged"}')
    session.emit("attempts/1/train.log", 24, b"six\n", keep=False)  # behind a gap
    stage.follow()
    assert stage.mirror.read("attempts/1/train.log", 0, 99) == b"one\ntwo\nthree\nfour\n"
    session.files |= {
        JOURNAL: journal,
        "attempts/1/train.log": b"one\ntwo\nthree\nfour\nfive\nsix\n",
        "attempts/1/config.json": b"{}",
    }
    stage.complete(session, step=10)
    for name in (JOURNAL, "attempts/1/train.log", "attempts/1/config.json"):
        assert stage.mirror.read(name, 0, 1 << 20) == session.files[name], name


def test_a_push_whose_answer_was_lost_is_found_and_never_repeated(stage: Stage) -> None:
    stage.place()
    stage.kaggle.lost = 1
    with pytest.raises(HostError) as error:
        stage.start()
    assert error.value.code == "KAGGLE_UNREACHABLE"
    assert stage.standing == ("queued", "kaggle_queue")
    assert stage.start()
    assert not stage.start()
    assert len(stage.kaggle.sessions) == 1


def test_a_later_push_without_a_reply_is_distinguished_by_its_version(stage: Stage) -> None:
    stage.place()
    first = stage.session()
    stage.emit(first, stage.begun() + stage.over())
    stage.complete(first, step=10)
    stage.kaggle.held = 1
    with pytest.raises(HostError):
        stage.start()
    assert not stage.start()  # the kernel is there, but in its first version; it may still come
    stage.kaggle.sessions.append(FakeSession(first.push))  # and so it does
    assert stage.start()
    assert stage.kaggle.asked.count("push") == 2


def test_a_push_that_never_came_through_is_sent_again_after_a_while(stage: Stage) -> None:
    stage.place()
    stage.kaggle.held = 1
    with pytest.raises(HostError):
        stage.start()
    assert not stage.start()
    stage.now += 121.0
    assert stage.start()
    assert len(stage.kaggle.sessions) == 1


def test_an_operator_that_was_killed_before_its_push_pushes_once(stage: Stage) -> None:
    stage.place()
    request = SessionRequest(f"somebody/tm-{RUN}", generation=1, limit_s=3600.0)
    assert stage.workspace.control.kaggle.intend(RUN, stage.now, request) is not None
    assert stage.start()
    assert not stage.start()
    assert len(stage.kaggle.sessions) == 1


def test_without_quota_nothing_is_pushed_until_it_renews(stage: Stage) -> None:
    stage.place()
    stage.kaggle.left_s = 600.0
    assert not stage.start()
    assert stage.standing == ("queued", "quota")
    kernel = stage.view.sessions
    assert kernel is not None and kernel.resumes_at == stage.kaggle.refresh_t
    answer = launched(stage.workspace, RUN)
    assert answer.resumes_at is not None and answer.next_step.startswith("The quota is spent until")
    asked = len(stage.kaggle.asked)
    assert not stage.start()
    assert len(stage.kaggle.asked) == asked  # it is believed for a while
    stage.now, stage.kaggle.left_s = stage.kaggle.refresh_t + 1.0, 30 * HOUR_S
    assert stage.start()
    assert stage.view.sessions is not None and stage.view.sessions.resumes_at is None


def test_a_session_lasts_no_longer_than_the_quota(stage: Stage) -> None:
    stage.place()
    stage.kaggle.left_s = 2 * HOUR_S
    session = stage.session()
    assert (session.order.limit_s, session.push.timeout_s) == (2 * HOUR_S, 2 * HOUR_S)


def test_a_kernel_without_accelerator_needs_no_quota(stage: Stage) -> None:
    stage.place(device="cpu")
    stage.kaggle.left_s = 0.0
    session = stage.session()
    assert (session.push.gpu, session.push.accelerator) == (False, None)
    assert "quota" not in stage.kaggle.asked


def test_a_session_that_leaves_nothing_is_carried_on_from_the_mirror(stage: Stage) -> None:
    stage.place()
    first = stage.session()
    stage.emit(first, stage.begun())
    stage.follow()
    first.end("error", "Your notebook exceeded its allowed time.")
    stage.follow()
    assert stage.standing == ("queued", "between_sessions")
    second = stage.session()
    order = second.order
    assert (order.previous, order.journal_bytes) == (None, len(first.files[JOURNAL]))
    assert order.carried is not None and order.carried.at == 0
    assert zlib.decompress(base64.b64decode(order.carried.z)) == first.files[JOURNAL]


def test_a_run_whose_sessions_come_to_nothing_fails_and_says_why(stage: Stage) -> None:
    stage.place()
    for _ in range(3):
        session = stage.session()
        session.say("ModuleNotFoundError: \x1b[31mno module\x1b[0m named nothing")
        session.end("error")
        stage.follow()
    assert not stage.start()
    assert len(stage.kaggle.sessions) == 3
    state, reason = stage.standing
    assert state == "failed"
    assert reason is not None and reason.startswith("no_progress: 3 sessions in a row")
    assert "no module" in reason and "\x1b" not in reason
    assert stage.view.record.closed


def test_a_killed_sessions_last_words_are_waited_for_within_bounds(stage: Stage) -> None:
    stage.place()
    session = stage.session()
    stage.emit(session, stage.begun())
    session.end("error", "killed")
    stage.kaggle.silent = True
    with pytest.raises(HostError):
        stage.follow()
    assert stage.view.sessions is not None and stage.view.sessions.alive
    stage.kaggle.silent = False
    stage.follow()
    assert stage.standing == ("queued", "between_sessions")
    assert stage.mirror.read(JOURNAL, 0, 1 << 20) == session.files[JOURNAL]

    second = stage.session()
    second.end("error", "killed before it said anything")
    stage.kaggle.silent = True
    with pytest.raises(HostError):
        stage.follow()
    stage.now += 121.0
    stage.follow()
    assert stage.standing == ("queued", "between_sessions")


def test_progress_resets_the_count_of_failures(stage: Stage) -> None:
    stage.place()
    for step in (None, None, 10, None, None):
        session = stage.session()
        if step is None:
            session.end("error")
            stage.follow()
        else:
            stage.emit(session, stage.begun() + stage.over())
            stage.complete(session, step)
    assert stage.standing == ("queued", "between_sessions")
    stage.complete(stage.session(), step=10)  # no further than before
    assert stage.standing[0] == "failed"


def test_between_sessions_a_stop_takes_effect_at_once_and_a_resume_continues(stage: Stage) -> None:
    stage.place()
    first = stage.session()
    stage.emit(first, stage.begun() + stage.over())
    stage.complete(first, step=10)
    stage.request(STOPPED)
    assert not stage.start()
    stage.follow()
    assert stage.standing == ("stopped", "stopped")
    assert stage.view.record.closed
    size = stage.mirror.size(JOURNAL)
    stage.follow()
    assert stage.mirror.size(JOURNAL) == size
    stage.request(AGAIN)
    second = stage.session()
    known = len(first.files[JOURNAL])
    assert second.order.carried is not None and second.order.carried.at == known
    assert second.order.journal_bytes == size


def test_a_stop_before_the_first_session_ends_the_run(stage: Stage) -> None:
    stage.place()
    stage.request(STOPPED)
    stage.follow()
    assert stage.standing == ("stopped", "stopped")
    assert stage.view.record.closed and stage.kaggle.sessions == []


def test_a_stop_while_a_session_is_alive_waits_for_its_end(stage: Stage) -> None:
    stage.place()
    session = stage.session()
    stage.emit(session, stage.begun())
    stage.follow()
    stage.request(STOPPED)
    assert stage.view.state.value == "stopping"
    assert "until 1970-01-13T01:46:40Z at most" in next_step(stage.view, [])
    stage.emit(session, stage.over())
    stage.complete(session, step=10)
    assert stage.standing == ("stopped", "stopped")
    assert not stage.start()


def test_a_push_that_is_not_wanted_any_more_is_not_sent_again(stage: Stage) -> None:
    stage.place()
    stage.kaggle.held = 1
    with pytest.raises(HostError):
        stage.start()
    stage.request(STOPPED)
    assert stage.view.state.value == "stopping"  # it may still come through
    stage.now += 121.0
    assert not stage.start()
    stage.follow()
    assert stage.standing == ("stopped", "stopped")
    assert stage.kaggle.sessions == []


def test_a_run_that_completes_needs_no_further_session(stage: Stage) -> None:
    stage.place()
    session = stage.session()
    completed = {"state": "completed", "reason": "completed", "detail": None}
    ended = {"attempt": 1, "reason": "completed", "code": 0, "last_step": 100}
    done = stage.journal(("attempt_ended", ended), ("state", completed), ("closed", {}))
    stage.emit(session, stage.begun() + done)
    news = stage.follow()
    assert stage.standing[0] == "completed"
    assert RUN in news.changed  # open until the session's output was read
    stage.complete(session, step=100)
    assert not stage.start()
    assert RUN not in stage.follow().changed


def test_a_kernel_of_somebody_elses_is_left_alone(stage: Stage) -> None:
    stage.kaggle.has_foreign_kernel = True
    with pytest.raises(HostError) as error:
        stage.place()
    assert error.value.code == "KERNEL_EXISTS"


def test_a_refused_push_is_reported_and_retried_only_later(stage: Stage) -> None:
    stage.place()
    stage.kaggle.refused = "The accelerator is not for you."
    with pytest.raises(HostError):
        stage.start()
    assert stage.workspace.control.kaggle.newest(RUN) is None
    assert stage.standing == ("queued", "KAGGLE_REFUSED: The accelerator is not for you.")
    assert not stage.start()
    assert stage.kaggle.asked.count("push") == 1
    stage.now, stage.kaggle.refused = stage.now + 301.0, None
    assert stage.start()


def test_nothing_is_pushed_for_an_accelerator_that_kaggle_would_replace(stage: Stage) -> None:
    stage.place()
    home = stage.workspace.home
    home.settings.write_text("kaggle: {accelerator: NvidiaTeslaP100}\n")
    with pytest.raises(CloudError, match="retired it"):
        stage.start()
    assert "push" not in stage.kaggle.asked
    assert stage.standing[0] == "queued" and "retired it" in str(stage.standing[1])
    home.settings.unlink()
    stage.now += 301.0
    assert stage.start()


def test_files_are_fetched_from_the_newest_output(stage: Stage) -> None:
    stage.place()

    async def files() -> list[str]:
        return [file.path for file in await stage.backend.list_files(RUN, "final")]

    with pytest.raises(HostError) as error:
        asyncio.run(files())
    assert error.value.code == "UNSUPPORTED"
    session = stage.session()
    stage.emit(session, stage.begun() + stage.over())
    session.files |= {"final/model.bin": b"weights", "checkpoints/x": b"-"}
    stage.complete(session, step=10)
    assert asyncio.run(files()) == ["final/model.bin"]
    assert asyncio.run(stage.backend.read_file(RUN, "final/model.bin", 2, 3)) == b"igh"


def test_sessions_that_leave_no_time_to_train_are_refused(stage: Stage) -> None:
    settings = "kaggle: {session_hours: 0.1, margin_minutes: 10.0}\n"
    stage.workspace.home.settings.write_text(settings)
    with pytest.raises(HostError) as error:
        asyncio.run(stage.backend.facts(None))
    assert error.value.code == "UNSUPPORTED"
    assert "margin_minutes" in error.value.fix
