"""Kaggle itself, asked for what costs nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from trainmaster.backends.kaggle.client import Quota
from trainmaster.backends.kaggle.credentials import TOKEN, key_places, with_keys
from trainmaster.backends.kaggle.process import KaggleProcess
from trainmaster.home.paths import Home


def test_kaggle_reports_the_weeks_quota_of_the_account(
    needs: Callable[[str, list[str]], None], real_home: Home
) -> None:
    needs(TOKEN, key_places(with_keys(real_home, os.environ)))
    account, quota = asyncio.run(_asked(real_home))
    assert account
    assert 0 <= quota.left_s <= quota.total_s
    assert quota.refresh_t is None or quota.refresh_t > time.time()


async def _asked(home: Home) -> tuple[str, Quota]:
    client = KaggleProcess(home)
    try:
        return await client.account(), await client.quota()
    finally:
        await client.close()
