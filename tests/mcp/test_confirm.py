"""Tools that cost money or destroy: who agrees, through every kind of client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult, InputRequiredResult
from support.machines.rented_instances import rented
from support.mcp.mcp_client import answer_of, error_of

from trainmaster.answers.runs import StopAnswer
from trainmaster.errors.confirmation import Confirm, Quote
from trainmaster.errors.errors import CloudError
from trainmaster.machines import approvals
from trainmaster.mcp.confirm import confirmed
from trainmaster.mcp.definition import ENDS, Definition, OpenWorkspace, ToolContext, build_tool
from trainmaster.mcp.error_mapping import AnsweringServer
from trainmaster.sync.workspace import Workspace, open_workspace

_ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
_YES = ElicitResult(action="accept", content={"agree": True})
Says = Callable[[str], Awaitable[ElicitResult]]


@dataclass
class Shop:
    """A service that costs money: what it sold, and to whose word. `prices`: of the next quotes."""

    home: Path
    sold: list[str] = field(default_factory=list)
    prices: list[float] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    sold_out: bool = False
    ended_again: bool = False
    ask_until_s: float = 20.0

    async def buy(self, workspace: Workspace, thing: str, confirm: Confirm) -> StopAnswer:
        usd = self.prices.pop(0) if self.prices else 3.0
        by = await confirm(Quote("provision", thing, f"Rent {thing} for {usd:.2f} USD.", usd))
        if self.ended_again:
            workspace.control.instances.add(rented())
            raise CloudError("PRICE_ABOVE_QUOTE", "It cost more.", "Take another.")
        if self.sold_out:
            raise CloudError("NO_CAPACITY", "There is none left.", "Take another.")
        self.sold.append(by)
        return StopAnswer(run_id=thing, state="completed", next_step="Go.")

    def client(self, era: str, says: Says | None = None) -> Client:
        """`says`: what the client's user does when asked; None where the client can't ask."""

        async def buy(
            context: ToolContext, *, thing: str = "a"
        ) -> StopAnswer | InputRequiredResult:
            """Buy."""
            return await confirmed(
                context,
                lambda workspace, confirm: self.buy(workspace, thing, confirm),
                ask_until_s=self.ask_until_s,
            )

        async def ask(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            assert says is not None
            self.asked.append(params.message)
            return await says(params.message)

        tools = [build_tool(Definition(buy, "Buy", ENDS))]
        server = AnsweringServer("shop", tools=tools, lifespan=self._lifespan)
        options: dict[str, Any] = {} if says is None else {"elicitation_callback": ask}
        return Client(server, mode=era, **options)

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[OpenWorkspace]:
        with ExitStack() as closing:
            yield OpenWorkspace({"TRAINMASTER_HOME": str(self.home)}, closing)

    async def approve_all(self) -> list[str]:
        """What somebody does in a terminal; the ids that waited."""
        with open_workspace({"TRAINMASTER_HOME": str(self.home)}) as workspace:
            waiting = (await approvals.list_waiting(workspace)).waiting
            for row in waiting:
                await approvals.approve(workspace, row.id)
        return [row.id for row in waiting]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "home")


def saying(answer: ElicitResult) -> Says:
    async def says(_: str) -> ElicitResult:
        return answer

    return says


async def says_nothing(_: str) -> ElicitResult:
    await anyio.sleep_forever()
    raise AssertionError


@_ERAS
def test_a_client_that_cannot_ask_cannot_spend(shop: Shop, era: str) -> None:
    async def scenario() -> None:
        async with shop.client(era) as client:
            for _ in range(2):
                refused = await error_of(client, "buy")
                assert refused.startswith("CONFIRMATION_REQUIRED: Rent a for 3.00 USD.")
            [waiting] = await shop.approve_all()  # asked for twice, one quote
            assert (
                f"Ask the user to run `trainmaster approve {waiting}` in a terminal, then call "
                "again with the same arguments. retryable=yes" in refused
            )
            assert "CONFIRMATION_REQUIRED" in await error_of(client, "buy", thing="b")
            assert shop.sold == []
            await answer_of(client, "buy")
            assert shop.sold == [f"approval {waiting}"]
            assert "CONFIRMATION_REQUIRED" in await error_of(client, "buy")

    anyio.run(scenario)


@_ERAS
def test_the_clients_user_is_asked_and_a_yes_is_good_once(shop: Shop, era: str) -> None:
    async def scenario() -> None:
        async with shop.client(era, saying(_YES)) as client:
            await answer_of(client, "buy")
            await answer_of(client, "buy")
        assert shop.asked == ["Rent a for 3.00 USD."] * 2
        assert shop.sold == ["elicitation"] * 2
        assert await shop.approve_all() == []

    anyio.run(scenario)


@_ERAS
@pytest.mark.parametrize(
    "says",
    [
        ElicitResult(action="decline"),
        ElicitResult(action="cancel"),
        ElicitResult(action="accept", content={"agree": False}),
    ],
)
def test_a_no_spends_nothing_and_leaves_nothing_to_approve(
    shop: Shop, era: str, says: ElicitResult
) -> None:
    async def scenario() -> None:
        async with shop.client(era, saying(says)) as client:
            assert (await error_of(client, "buy")).startswith("CONFIRMATION_DECLINED: ")
        assert await shop.approve_all() == []

    anyio.run(scenario)
    assert shop.sold == []


@_ERAS
@pytest.mark.parametrize("content", [None, {}, {"agree": "perhaps"}])
def test_a_yes_without_its_content_is_none(shop: Shop, era: str, content: Any) -> None:
    async def scenario() -> None:
        says = saying(ElicitResult(action="accept", content=content))
        async with shop.client(era, says) as client:
            assert (await error_of(client, "buy")).startswith("CONFIRMATION_REQUIRED: ")

    anyio.run(scenario)
    assert shop.sold == []


def test_who_does_not_answer_in_time_may_approve_later(shop: Shop) -> None:
    shop.ask_until_s = 0.2

    async def scenario() -> None:
        async with shop.client("legacy", says_nothing) as client:
            refused = await error_of(client, "buy")
            [waiting] = await shop.approve_all()
            assert f"`trainmaster approve {waiting}`" in refused
            assert shop.sold == []
            await answer_of(client, "buy")
            assert shop.sold == [f"approval {waiting}"]

    anyio.run(scenario)


def test_a_question_that_ends_the_call_can_be_answered_in_a_terminal(shop: Shop) -> None:
    """Since 2026-07-28 nobody waits for the answer on this side."""

    async def scenario() -> None:
        async with shop.client("2026-07-28", says_nothing) as client:
            with anyio.move_on_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(client.call_tool, "buy", {})
                    while not shop.asked:
                        await anyio.sleep(0.01)
                    tasks.cancel_scope.cancel()
            [waiting] = await shop.approve_all()
            await answer_of(client, "buy")
            assert shop.sold == [f"approval {waiting}"]

    anyio.run(scenario)


def test_an_answer_is_not_taken_for_a_price_that_rose_meanwhile(shop: Shop) -> None:
    shop.prices = [3.0, 4.0, 4.0]

    async def scenario() -> None:
        async with shop.client("2026-07-28", saying(_YES)) as client:
            await answer_of(client, "buy")

    anyio.run(scenario)
    assert shop.asked == ["Rent a for 3.00 USD.", "Rent a for 4.00 USD."]
    assert shop.sold == ["elicitation"]


def test_who_declined_is_not_asked_again_for_another_price(shop: Shop) -> None:
    shop.prices = [3.0, 4.0]

    async def scenario() -> None:
        async with shop.client("2026-07-28", saying(ElicitResult(action="decline"))) as client:
            assert (await error_of(client, "buy")).startswith("CONFIRMATION_DECLINED: ")
        assert await shop.approve_all() == []

    anyio.run(scenario)
    assert shop.asked == ["Rent a for 3.00 USD."]
    assert shop.sold == []


def test_an_answer_that_is_sent_again_buys_nothing(shop: Shop) -> None:
    async def scenario() -> None:
        async with shop.client("2026-07-28", saying(_YES)) as client:
            session = client.session
            first = await session.call_tool("buy", {}, allow_input_required=True)
            assert isinstance(first, InputRequiredResult)
            answer: dict[str, Any] = {
                "input_responses": dict.fromkeys(first.input_requests or {}, _YES),
                "request_state": first.request_state,
            }
            assert not (await client.call_tool("buy", {}, **answer)).is_error
            again = await client.call_tool("buy", {}, **answer)
            assert "CONFIRMATION_REQUIRED" in again.content[0].text  # type: ignore[union-attr]

    anyio.run(scenario)
    assert shop.sold == ["elicitation"]


def test_an_approval_is_used_up_by_an_instance_that_has_ended(shop: Shop) -> None:
    """A provider that asks for more than it had said must not be rented from again and again."""
    shop.home.mkdir()
    (shop.home / "settings.yaml").write_text("agent_may_spend_usd: 5\n")
    shop.ended_again = True

    async def scenario() -> None:
        async with shop.client("legacy") as client:
            assert (await error_of(client, "buy")).startswith("PRICE_ABOVE_QUOTE: ")
            assert (await error_of(client, "buy")).startswith("CONFIRMATION_REQUIRED: ")

    anyio.run(scenario)


@_ERAS
def test_within_the_allowance_nobody_is_asked_and_beyond_it_somebody_is(
    shop: Shop, era: str
) -> None:
    shop.home.mkdir()
    (shop.home / "settings.yaml").write_text("agent_may_spend_usd: 5\n")

    async def scenario() -> None:
        async with shop.client(era) as client:
            shop.sold_out = True
            assert (await error_of(client, "buy")).startswith("NO_CAPACITY: ")
            shop.sold_out = False  # and of the allowance nothing was used up
            await answer_of(client, "buy")
            assert (await error_of(client, "buy")).startswith("CONFIRMATION_REQUIRED: ")

    anyio.run(scenario)
    assert shop.sold == ["allowance"]
