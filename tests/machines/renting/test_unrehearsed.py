"""A longer lease without a rehearsal: a person is warned, and no allowance pays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.machines.rental_home import OFFERS, Renter, silent_renter
from support.runs.rehearsals import program_spec, rehearse_all
from support.runs.running_run import CommandLine

from trainmaster.errors.confirmation import Quote
from trainmaster.errors.errors import SpendError
from trainmaster.machines.approvals import approve, confirmation_required, take_agreement
from trainmaster.machines.renting.provision import ProvisionRequest, provision
from trainmaster.sync.workspace import Workspace


@pytest.fixture
def renter(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renter]:
    for renter in silent_renter(home, monkeypatch):
        settings = home / "settings.yaml"
        settings.write_text(f"{settings.read_text()}agent_may_spend_usd: 100\n")
        yield renter


def quote_of(renter: Renter, hours: float, spec: str | None = None) -> Quote:
    """What a person would be asked; nothing is rented."""
    quotes: list[Quote] = []

    async def declining(quote: Quote) -> str:
        quotes.append(quote)
        raise SpendError("CONFIRMATION_DECLINED", "No.", "Ask again.")

    request = ProvisionRequest(OFFERS["runpod"], hours, spec=spec)
    with pytest.raises(SpendError, match="CONFIRMATION_DECLINED"):
        renter.do(lambda workspace: provision(workspace, request, confirm=declining))
    return quotes[0]


def agreed_by(renter: Renter, quote: Quote) -> str | None:
    async def take(workspace: Workspace) -> str | None:
        taken = take_agreement(workspace, quote)
        return None if taken is None else taken.by

    return renter.do(take)


def test_an_allowance_rents_an_hour_and_no_longer_lease_without_a_rehearsal(
    renter: Renter, tmp_path: Path
) -> None:
    short, unnamed = quote_of(renter, 1.0), quote_of(renter, 2.0)
    named = quote_of(renter, 2.0, program_spec(tmp_path, "own"))
    assert "rehears" not in short.text
    assert "No training is named for it. `trainmaster rehearse SPEC` first" in unnamed.text
    assert "No rehearsal of own has passed: `trainmaster rehearse SPEC` first" in named.text
    assert [agreed_by(renter, quote) for quote in (unnamed, named)] == [None, None]
    assert agreed_by(renter, short) == "allowance"


def test_a_person_may_rent_without_a_rehearsal_for_that_very_training(
    renter: Renter, tmp_path: Path
) -> None:
    own, other = program_spec(tmp_path, "own"), program_spec(tmp_path, "own", "--own-steps")
    quote = quote_of(renter, 2.0, own)

    async def approved(workspace: Workspace) -> None:
        refused = confirmation_required(workspace, quote)
        assert "No rehearsal of own has passed" in refused.message
        await approve(workspace, refused.fix.partition(" approve ")[2].partition("`")[0])

    renter.do(approved)
    assert agreed_by(renter, quote_of(renter, 2.0, other)) is None
    assert agreed_by(renter, quote_of(renter, 2.0, own)) == "approve"


@pytest.mark.slow
def test_after_a_rehearsal_that_passed_a_lease_is_quoted_as_ever(
    renter: Renter, tmp_path: Path
) -> None:
    specs = {
        name: program_spec(tmp_path, name or "own", "--fault", name) for name in ("", "export")
    }
    reports = rehearse_all(CommandLine(renter.home), specs)
    assert [report["verdict"] for report in reports.values()] == ["passed", "failed"]
    after_failed, after_passed = (quote_of(renter, 2.0, specs[name]) for name in ("export", ""))
    assert "No rehearsal of export has passed" in after_failed.text
    assert "rehears" not in after_passed.text
    assert agreed_by(renter, after_passed) == "allowance"
