"""Alerts and destinations that are none are refused, at their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.alerts.webhook_receiver import Receiver
from support.runs.operator import SLOW, Operator
from support.runs.running_run import run_async, small_spec

from trainmaster.errors.errors import SpecError, StateError, TrainmasterError, UsageError
from trainmaster.runs import alerts as service
from trainmaster.runs.lists.list_alerts import list_alerts
from trainmaster.runs.planning.plan_run import plan_run


@pytest.mark.parametrize(
    ("arguments", "code", "field"),
    [
        ({"when": "loss >"}, "CONDITION_INVALID", "when"),
        ({"when": "finding los_spike"}, "CONDITION_INVALID", "when"),
        ({"when": "loss > 1", "to": "nobody"}, "DESTINATION_UNKNOWN", "to"),
        ({"when": "loss > 1", "severity": "loud"}, "BAD_ARGUMENT", "severity"),
        ({"when": "loss > 1", "name": "../x"}, "BAD_ARGUMENT", "name"),
        ({"when": "loss > 1", "run": "nothing"}, "RUN_NOT_FOUND", None),
        ({"when": "loss > 2", "name": "there"}, "ALERT_EXISTS", "name"),
    ],
)
def test_a_bad_alert_is_refused_by_name(
    operator: Operator,
    receiver: Receiver,
    arguments: dict[str, str],
    code: str,
    field: str | None,
) -> None:
    operator.hook(receiver, "box")
    run_async(lambda: service.add_alert(operator.workspace, when="loss > 1", name="there"))
    with pytest.raises(TrainmasterError) as refused:
        run_async(lambda: service.add_alert(operator.workspace, **arguments))
    assert (refused.value.code, refused.value.field) == (code, field)


def test_a_bad_alert_of_a_spec_is_refused_at_its_place(operator: Operator, tmp_path: Path) -> None:
    def refusal(alerts: str) -> TrainmasterError:
        spec = small_spec(tmp_path, host="debug", alerts=alerts)
        with pytest.raises((SpecError, UsageError)) as refused:
            run_async(lambda: plan_run(operator.workspace, spec))
        return refused.value

    bad = refusal("[{name: a, when: loss >> 3, to: ops}]")
    assert (bad.code, bad.field) == ("CONDITION_INVALID", "alerts[0].when")
    assert "At character 6 stands '>>'" in bad.message
    unknown = refusal("[{name: a, when: loss > 3, to: ops}]")
    assert (unknown.code, unknown.field) == ("DESTINATION_UNKNOWN", "alerts[0].to")


@pytest.mark.parametrize(
    "destination",
    [
        "{kind: webhook}",
        "{kind: webhook, url: 'ftp://x/y'}",
        "{kind: webhook, url: 'https://x/y', url_secret: NAME}",
        "{kind: command, command: []}",
        "{kind: command, command: [x], sender: box}",
        "{kind: pager, url: 'https://x/y'}",
        "{kind: slack, command: [x]}",
        "{kind: slack, url: 'https://x/y', token: z}",
    ],
)
def test_a_destination_without_one_address_of_its_kind_is_refused(
    operator: Operator, destination: str
) -> None:
    operator.settle(f"ops: {destination}")
    with pytest.raises(StateError) as refused:
        run_async(lambda: list_alerts(operator.workspace))
    assert refused.value.code == "SETTINGS_NOT_READABLE"
    assert str(refused.value.field).startswith("destinations")


@pytest.mark.slow
def test_settings_that_break_later_hold_up_no_training(operator: Operator) -> None:
    async def work() -> str:
        run = await operator.launch(SLOW, steps="5", eval="{every_steps: 5, batches: 1}")
        operator.workspace.home.settings.write_text("destinations: [nonsense]\n")
        return await operator.ended(run)

    assert run_async(work) == "completed"


def test_an_alert_on_a_metric_that_nothing_reports_is_taken_and_says_so(
    operator: Operator, receiver: Receiver
) -> None:
    operator.hook(receiver, "operator")
    # What was meant: "" where the run reports it, None where nothing is near.
    meant = {"val_los < 3": "`val_loss`", "wonder > 1": None, "val_loss < 3": "", "mfu < 1": ""}

    async def work() -> list[tuple[str, str | None]]:
        run = await operator.launch()
        await operator.ended(run)
        return [
            (
                when,
                (
                    await service.add_alert(operator.workspace, when=when, name=f"{at}{n}", run=of)
                ).note,
            )
            for n, when in enumerate(meant)
            for at, of in (("a", run), ("b", None))
        ]

    for when, note in run_async(work):
        if meant[when] == "":
            assert note is None
        else:
            assert note is not None and when.split(maxsplit=1)[0] in note
            assert ("did you mean" in note) == (meant[when] is not None)
            assert (meant[when] or "") in note
