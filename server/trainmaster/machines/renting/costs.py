"""What renting has cost so far, and may yet come to: by box and by run, and what nobody knew of."""

from __future__ import annotations

import time

from trainer_runtime.core.protocol.duration import in_utc
from trainmaster.machines.renting.factory import Opener
from trainmaster.machines.renting.instance_answers import reason_of
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.runs.cost import committed_usd, spans_of, spent_usd, usd_of
from trainmaster.store.control.instances import RentedBox
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.rentals import BoxRow, CostsAnswer
from trainmaster.words.settings import read_settings


async def list_costs(
    workspace: Workspace, *, ask: bool = True, opened: Opener | None = None
) -> CostsAnswer:
    """The boxes on record, open ones first, and the runs that were on them.

    `ask`: look at the providers' lists first, so that boxes that are gone count no longer and boxes
    with our tag that no record knows are told; a provider that can't be asked is named.
    """
    found = await reconcile(workspace, opened=opened) if ask else None
    now = time.time()
    boxes = workspace.control.boxes.boxes()
    shown = [box for box in boxes if box.open or spent_usd(box, now) > 0]
    shown.sort(key=lambda box: (not box.open, -box.intended_t))
    runs = {
        run.run_id: round(usd_of(spans_of(workspace, run), boxes, now), 4)
        for run in workspace.control.runs()
        if any(box.host == run.host for box in boxes)
    }
    return CostsAnswer(
        spent_usd=round(sum(spent_usd(box, now) for box in boxes), 4),
        committed_usd=round(sum(committed_usd(box, now) for box in boxes), 4),
        max_usd_total=read_settings(workspace.home).max_usd_total,
        boxes=[_row(box, now) for box in shown],
        runs={run_id: usd for run_id, usd in runs.items() if usd > 0},
        strays=found.strays if found else None,
        not_asked=found.not_asked if found else None,
        next_step=found.next_step if found else None,
    )


def _row(box: RentedBox, now: float) -> BoxRow:
    return BoxRow(
        box=box.tag,
        host=box.host,
        provider=box.provider,
        state=box.state.value,
        usd_per_h=round(box.usd_per_h, 4),
        spent_usd=round(spent_usd(box, now), 4),
        budget_usd=round(box.budget_usd, 2),
        lease_ends_at=in_utc(box.lease_end_t),
        ended_at=in_utc(box.ended_t),
        reason=reason_of(box),
    )
