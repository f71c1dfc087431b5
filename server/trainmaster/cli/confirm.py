"""Confirmation on a command line: `--yes`, or an answer at the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.output import printable
from trainmaster.cli.spinner import kept_quiet
from trainmaster.errors.errors import SpendError

if TYPE_CHECKING:
    from trainmaster.errors.confirmation import Confirm, Quote

Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]


def asking(yes: bool, as_json: bool) -> Confirm:
    """The confirmation by `--yes`, or by the person at the terminal.

    Raises, where it is needed:
        SpendError: `CONFIRMATION_REQUIRED`, there is nobody to ask; `CONFIRMATION_DECLINED`.
    """
    from trainmaster.errors.confirmation import agreed

    async def ask(quote: Quote) -> str:
        if not somebody_answers(as_json):
            raise _nobody(quote)
        if not await agrees(quote.text):
            raise declined()
        return "prompt"

    return agreed if yes else ask


async def agrees(text: str) -> bool:
    """Whether the person at the terminal agrees to what `text` says."""
    with kept_quiet():
        return await _says_yes(text)


def somebody_answers(as_json: bool) -> bool:
    """Whether a question would be seen, and answered by a person."""
    return not as_json and sys.stdin.isatty() and sys.stderr.isatty()


def declined() -> SpendError:
    return SpendError("CONFIRMATION_DECLINED", "Nobody agreed; nothing was done.", "Answer y.")


async def _says_yes(text: str) -> bool:
    """By the loop, so that Ctrl-C and connections are heard while somebody thinks."""
    import asyncio

    print(f"{printable(text)} Go ahead? [y/N]: ", end="", file=sys.stderr, flush=True)
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _nobody(quote: Quote) -> SpendError:
    return SpendError(
        "CONFIRMATION_REQUIRED",
        f"{quote.text} There is nobody to ask.",
        "Let the person who pays for it or owns it run this in a terminal without --json; --yes is "
        "for a script whose owner agreed before.",
    )
