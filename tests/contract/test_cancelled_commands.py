"""One suite for every transport: a command that is cancelled while it is being started."""

from __future__ import annotations

import asyncio
import random

from support.backends.reachability import Reach, commands_on, finish
from support.backends.ssh_hosts import Sshd
from support.runs.running_run import wait_until


def test_a_command_that_is_cancelled_at_any_moment_leaves_nothing_behind(reach: Reach) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chosen = random.Random(seed)

    async def cancel(host: Sshd) -> None:
        async with reach(host) as transport:
            for _ in range(20):
                running = asyncio.create_task(transport.run(["sleep", "1000"], timeout_s=50))
                await asyncio.sleep(chosen.uniform(0, 0.06))
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            assert (await transport.run(["true"], timeout_s=20)).code == 0
            # What was cancelled on its way may begin there yet, and is ended then.
            await asyncio.to_thread(
                wait_until, lambda: "sleep 1000" not in commands_on(host), "their end", 15.0
            )

    with Sshd() as host:
        finish(cancel(host))
