from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.store.control import Control
from trainmaster.store.control.idempotency import Action, IdempotencyKey
from trainmaster.store.control.runs import NewConfig
from trainmaster.store.control.schema import SCHEMA
from trainmaster.store.database import open_database
from trainmaster.store.migration import Schema
from trainmaster.store.run import Run
from trainmaster.store.run_id import RUN_ID, new_run_id

LAUNCHED = Desired(DesiredState.RUNNING, generation=1)
STOPPED = Desired(DesiredState.STOPPED, generation=2, why="stop", grace_s=5.0)


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    control = Control(tmp_path / "control.db")
    yield control
    control.close()


def run(name: str, created_t: float = 1.0) -> Run:
    return Run(
        run_id=f"{name}-abc234",
        name=name,
        created_t=created_t,
        host="local",
        spec="name: x",
        document={"steps": 10},
        plan={"decisions": []},
        labels={"team": "a"},
    )


def add(control: Control, name: str, key: str | None = None, created_t: float = 1.0) -> str:
    wanted = run(name, created_t)
    idempotency_key = IdempotencyKey(key, "launch", "what") if key else None
    return control.add_run(wanted, LAUNCHED, "process", "/folder", idempotency_key)


def result(
    control: Control, key: str, action: Action = "launch", asked: str = "what"
) -> str | None:
    return control.keys.result(IdempotencyKey(key, action, asked))


def test_a_run_is_found_by_id_and_by_name(control: Control) -> None:
    assert add(control, "gpt") == "added"
    assert control.run("gpt") == control.run("gpt-abc234") == run("gpt")
    with pytest.raises(StateError, match="No run is called 'gp'"):
        control.run("gp")


def test_runs_are_listed_newest_first_and_closed_ones_are_left_out_where_asked(
    control: Control,
) -> None:
    for created_t, name in enumerate(("a", "b", "c")):
        add(control, name, created_t=float(created_t))
    control.close_run("b-abc234", answered=1)
    assert [found.name for found in control.runs()] == ["c", "b", "a"]
    assert [found.name for found in control.runs(only_open=True)] == ["c", "a"]


def test_the_open_runs_of_a_host_that_are_placed_are_listed_with_their_newest_request(
    control: Control,
) -> None:
    for name in ("placed", "resumed", "waiting", "over"):
        add(control, name)
        if name != "waiting":
            control.set_placed(run(name), 5.0)
    control.request("resumed-abc234", STOPPED, 6.0)
    control.close_run("over-abc234", answered=1)
    assert sorted(control.open_runs("local")) == [("placed-abc234", 1, 1), ("resumed-abc234", 1, 2)]
    assert control.open_runs("elsewhere") == []


def test_a_name_that_is_taken_gets_the_first_free_number(control: Control) -> None:
    assert control.free_name("gpt") == "gpt"
    add(control, "gpt")
    add(control, "gpt-3")
    assert control.free_name("gpt") == "gpt-2"
    add(control, "gpt-2")
    assert control.free_name("gpt") == "gpt-4"


def test_a_name_taken_at_the_last_moment_is_reported_and_nothing_recorded(control: Control) -> None:
    add(control, "gpt")
    assert add(control, "gpt", key="k") == "name taken"
    assert result(control, "k") is None
    assert len(control.runs()) == 1


def test_an_idempotency_key_stands_for_its_first_run(control: Control) -> None:
    assert result(control, "k") is None
    add(control, "gpt", key="k")
    assert result(control, "k") == "gpt-abc234"
    assert add(control, "other", key="k") == "key taken"
    assert [found.name for found in control.runs()] == ["gpt"]


@pytest.mark.parametrize(("action", "asked"), [("launch", "something else"), ("resume", "what")])
def test_a_key_used_for_something_else_is_refused(
    control: Control, action: Action, asked: str
) -> None:
    add(control, "gpt", key="k")
    with pytest.raises(UsageError) as refused:
        result(control, "k", action, asked)
    assert refused.value.code == "IDEMPOTENCY_CONFLICT"


def test_the_newest_request_stands_until_it_is_delivered(control: Control) -> None:
    add(control, "gpt")
    control.set_delivered("gpt-abc234", 1, 2.0)
    assert control.desired("gpt-abc234") == (LAUNCHED, True)
    control.request("gpt-abc234", STOPPED, 3.0)
    assert control.desired("gpt-abc234") == (STOPPED, False)
    control.set_delivered("gpt-abc234", 2, 4.0)
    assert control.desired("gpt-abc234") == (STOPPED, True)


def test_a_request_opens_a_closed_run_again(control: Control) -> None:
    add(control, "gpt")
    control.close_run("gpt-abc234", answered=1)
    control.request("gpt-abc234", STOPPED, 3.0, key=IdempotencyKey("key", "resume", "what"))
    assert not control.run("gpt").closed
    assert result(control, "key", "resume") == "gpt-abc234"


def test_a_run_with_a_request_that_was_not_answered_is_not_closed(control: Control) -> None:
    add(control, "gpt")
    control.request("gpt-abc234", STOPPED, 3.0)
    control.close_run("gpt-abc234", answered=1)
    assert not control.run("gpt").closed
    control.close_run("gpt-abc234", answered=2)
    assert control.run("gpt").closed


def test_a_run_is_placed_once_its_host_has_it(control: Control) -> None:
    add(control, "gpt")
    assert not control.is_placed(run("gpt"))
    control.set_placed(run("gpt"), 2.0)
    assert control.is_placed(run("gpt"))


def test_a_forgotten_run_leaves_nothing_and_its_name_and_key_are_free(control: Control) -> None:
    add(control, "gpt", key="k")
    add(control, "kept")
    control.forget_unplaced("gpt-abc234")
    assert [found.name for found in control.runs()] == ["kept"]
    assert add(control, "gpt", key="k") == "added"


def test_the_changes_of_a_resume_are_recorded(control: Control) -> None:
    add(control, "gpt")
    config = {"steps": 20, "labels": {"for": "paper"}}
    control.request("gpt-abc234", STOPPED, 3.0, new_config=NewConfig("name: y", config))
    control.set_cleaned("gpt-abc234")
    found = control.run("gpt")
    assert (found.spec, found.document, found.cleaned) == ("name: y", config, True)
    assert found.labels == {"for": "paper"}


def test_everything_is_still_there_after_opening_again(control: Control, tmp_path: Path) -> None:
    add(control, "gpt", key="k")
    again = Control(tmp_path / "control.db")
    assert again.run("gpt") == run("gpt")
    assert result(again, "k") == "gpt-abc234"
    again.close()


def test_run_ids_are_made_of_the_name_and_six_characters() -> None:
    made = {new_run_id("gpt-1.5b") for _ in range(50)}
    assert len(made) == 50
    assert all(RUN_ID.fullmatch(run_id) and run_id.startswith("gpt-1.5b-") for run_id in made)


def test_keys_of_an_older_home_find_their_first_result(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    older = open_database(path, Schema(SCHEMA.steps[:4]), synchronous="FULL")
    older.execute("INSERT INTO idempotency VALUES ('k', 'launch', 'what', 'gpt-abc234', 1.0)")
    older.execute("INSERT INTO instance_keys VALUES ('k', 'offer', 'tm-1')")
    older.close()
    control = Control(path)
    assert result(control, "k") == "gpt-abc234"
    assert result(control, "k", "provision", "offer") == "tm-1"
    control.close()


def test_a_key_of_a_run_is_free_for_an_instance(control: Control) -> None:
    add(control, "gpt", key="k")
    assert result(control, "k", "provision") is None


def test_a_request_whose_key_is_taken_is_not_recorded(control: Control) -> None:
    add(control, "gpt", key="k")
    assert not control.request("gpt-abc234", STOPPED, 3.0, key=IdempotencyKey("k", "resume", "x"))
    assert control.desired("gpt-abc234") == (LAUNCHED, False)


def test_the_newest_runs_are_read_a_page_at_a_time(control: Control) -> None:
    for created_t, name in enumerate(("a", "b", "b2", "c")):
        add(control, name, created_t=1.0 if "b" in name else float(created_t))
    control.close_run("c-abc234", answered=1)

    def names(limit: int, **options: Any) -> list[str]:
        return [found.name for found in control.list.newest(limit, **options)]

    assert names(9) == ["c", "b", "b2", "a"]
    assert names(2) == ["c", "b"]
    assert names(2, after=control.run("b")) == ["b2", "a"]
    assert names(2, only_open=True) == ["b", "b2"]
    assert names(1, label="team") == names(1, label="team=a") == ["c"]
    assert names(9, label="team=b") == names(9, label="a") == []


def test_a_closed_run_is_due_until_it_is_settled_and_after_it_was_opened_again(
    control: Control,
) -> None:
    for name in ("a", "b", "c"):
        add(control, name)
    control.close_run("b-abc234", answered=1)

    def due() -> list[str]:
        return sorted(run_id.partition("-")[0] for run_id, _ in control.due_runs())

    assert due() == ["a", "b", "c"]
    control.settle(["a-abc234", "b-abc234"])
    assert due() == ["a", "c"]  # an open run is not settled
    assert control.run("b").closed
    control.request("b-abc234", STOPPED, 6.0)
    assert due() == ["a", "b", "c"]
    assert not control.run("b").closed
