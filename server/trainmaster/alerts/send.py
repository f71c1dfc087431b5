"""Sends this side's messages: by a tick, or by a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from typing import Any

from trainer_runtime.core.alerts.destination_kinds import KINDS
from trainer_runtime.core.alerts.post_answer import PostAnswer
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.files.private import for_the_user, users_umask
from trainer_runtime.core.protocol.alert_record import AlertDelivery, failed
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.text import shown
from trainmaster.alerts.destinations import address, destinations
from trainmaster.errors.errors import StateError
from trainmaster.settings.settings import Destination
from trainmaster.store.control.alerts import MessageRow
from trainmaster.store.detached import SAFELY, begin_locked
from trainmaster.sync.workspace import Workspace

# The sender stays for what is tried again soon; later tries are made by who acts then.
_STAYS_S = 300.0
_LONGEST_CHILD_S = 30.0
_COMMAND_S = 15.0
# Receivers take about one message a second; Slack says so, Discord thirty a minute.
_LEAST_PAUSE_S = 2.0
_MOST_SAID = 200


def begin_sending(workspace: Workspace) -> bool:
    """Start the sender, detached, where a message is due and no sender lives; True if so."""
    due_t = workspace.control.alerts.next_due_t()
    if due_t is None or due_t > time.time():
        return False
    return begin_locked(workspace.home, workspace.home.alerts_lock, "send-alerts")


async def send_due(
    workspace: Workspace, *, stays_s: float = _STAYS_S, lock_descriptor: int | None = None
) -> int:
    """Send what is due, and what becomes due within `stays_s`; how many were taken.

    Nothing where another process sends. `lock_descriptor`: the lock, where the caller was given it.
    """
    lock = try_lock(workspace.home.alerts_lock) if lock_descriptor is None else lock_descriptor
    if lock is None:
        return 0
    sent, deadline = 0, time.monotonic() + stays_s
    records = workspace.control.alerts
    try:
        while (due_t := records.next_due_t()) is not None:
            wait_s = due_t - time.time()
            if wait_s > 0 and time.monotonic() + wait_s > deadline:
                break
            await asyncio.sleep(max(0.0, wait_s))
            for row in records.due(time.time()):
                if time.monotonic() > deadline:
                    return sent  # receivers that hang: the rest is still due
                sent += await _send(workspace, row)
                await asyncio.sleep(_LEAST_PAUSE_S if records.next_due_t() is not None else 0)
    finally:
        os.close(lock)
    return sent


async def try_once(
    workspace: Workspace, to: str, destination: Destination, message: Any
) -> PostAnswer:
    """Send a message to a destination once; the result, as `host/alerts/post.py` reports it.

    Raises:
        StateError: the secret of its address can't be read.
    """
    body = KINDS[destination.kind].body(message)
    if destination.command:
        return await asyncio.to_thread(_run_command, destination.command, body)
    url = address(workspace.home, to, destination, os.environ)
    asked = json.dumps({"url": url, "body": body, "id": message.id}).encode()
    return await asyncio.to_thread(_post, asked)


async def _send(workspace: Workspace, row: MessageRow) -> bool:
    records = workspace.control.alerts
    try:
        destination = destinations(workspace.home).get(row.to)
        if destination is None:
            answer = PostAnswer(False, f"the settings name no destination {row.to}")
        else:
            answer = await try_once(workspace, row.to, destination, row.message)
    except StateError as error:
        answer = PostAnswer(False, error.code)
    if answer.sent:
        records.set_sent(row.id)
        return True
    delivery = AlertDelivery(row.message, row.to, row.fired_t, tries=row.tries)
    said = failed(row.id, delivery, answer.reason, time.time(), wait_s=answer.wait_s)
    records.set_failed(row.id, said["reason"], said["due_t"])
    return False


def _post(asked: bytes) -> PostAnswer:
    """Send by the host's own program, in a process that can be ended if the receiver hangs."""
    try:
        done = subprocess.run(
            [sys.executable, *SAFELY, "-m", "trainer_runtime", "alert"],
            input=asked,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_LONGEST_CHILD_S,
            check=False,
        )
        return PostAnswer.of(decode_fields(done.stdout, "the sender's answer"))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return PostAnswer(False, "the sender was ended")


def _run_command(command: list[str], body: dict[str, Any]) -> PostAnswer:
    try:
        done = subprocess.run(
            command,
            env=for_the_user(os.environ),
            umask=users_umask(),
            input=json.dumps(body).encode() + b"\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return PostAnswer(False, f"the command did not end within {spoken_duration(_COMMAND_S)}")
    except (OSError, ValueError):
        return PostAnswer(False, "the command can't be started")
    said = shown(done.stdout[:_MOST_SAID].replace(b"\n", b" ")).strip()
    if done.returncode != 0:
        reason = f"the command ended with {done.returncode}"
        return PostAnswer(False, reason, said=said)
    return PostAnswer(True, said=said)
