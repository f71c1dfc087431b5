from __future__ import annotations

from typing import Any

import pytest
from support.core.journal_records import FIRST_T, record

from trainer_runtime.core.alerts.message import Message
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.alert_record import (
    GIVE_UP_AFTER_S,
    AlertDelivery,
    AlertRecord,
    failed,
    fired,
    sent,
)
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.journal_lines import AlertChanged


def message(name: str) -> Message:
    return Message(name, "small-abc234", "gpu-1", "high", "warning", "running", 3, "It is.", 5.0)


def apply(record: AlertRecord, t: float, fields: dict[str, Any]) -> None:
    record.apply(t, AlertChanged.of(Fields(fields)))


def test_a_message_is_due_until_it_is_sent() -> None:
    alerts = AlertRecord()
    apply(alerts, 100.0, fired(message("a"), "ops"))
    assert alerts.knows(message("a"), 100.0)
    assert alerts.due(99.0) is None
    due = alerts.due(100.0)
    assert due is not None
    apply(alerts, 101.0, failed("a", due[1], "no answer", 101.0))
    assert (alerts.due(102.9), alerts.unsent) == (None, ["a"])
    assert alerts.deliveries["a"].tries == 1
    apply(alerts, 103.0, sent("a"))
    assert (alerts.due(1e9), alerts.unsent) == (None, [])


def test_tries_grow_apart_obey_the_receiver_and_end_after_a_day() -> None:
    waiting = AlertDelivery({}, "ops", 100.0)
    pauses = []
    for tries in range(12):
        waiting.tries = tries
        pauses.append(failed("a", waiting, "down", 100.0)["due_t"] - 100.0)
    assert pauses == [2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]
    assert failed("a", waiting, "busy", 100.0, wait_s=3000.0)["due_t"] == 3100.0
    assert failed("a", waiting, "down", 100.0 + GIVE_UP_AFTER_S)["due_t"] is None
    assert failed("a", waiting, "down", 100.0, last=True)["due_t"] is None


def test_a_forgotten_message_is_still_known() -> None:
    alerts = AlertRecord()
    for number in range(200):
        apply(alerts, float(number), fired(message(str(number)), "ops"))
        apply(alerts, float(number), sent(str(number)))
    assert len(alerts.deliveries) <= 65
    assert all(alerts.knows(message(str(number)), float(number)) for number in range(200))
    assert not alerts.knows(message("new"), 200.0)


def test_the_record_of_a_journal_survives_a_journey_through_json() -> None:
    folded = record(("alert", fired(message("a"), "ops")))
    again = Record.from_dict(folded.to_dict())
    assert again == folded
    assert again.alerts.deliveries["a"].message == message("a")
    assert again.alerts.deliveries["a"].fired_t == FIRST_T


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"phase": "fired"},
        {"phase": "fired", "id": "a", "to": "ops", "message": {"id": "a"}},
        {"phase": "fired", "id": "a", "message": "text"},
        {"phase": "sent", "id": "never"},
    ],
)
def test_an_event_of_another_shape_changes_nothing(fields: dict[str, Any]) -> None:
    assert record(("alert", fields)).alerts == AlertRecord()
