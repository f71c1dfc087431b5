"""Checks against the real services, with the user's own keys (`make test-live`).

They only read: nothing is rented, pushed or changed. Services without a key are left out and
named; without any key the session fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from trainmaster.home.paths import Home, find_home

Needs = Callable[[str, list[str]], None]

_HOW = "put it into the environment or the home's secrets.env"


@pytest.fixture
def real_home() -> Home:
    """The user's own home."""
    return find_home(os.environ)


@pytest.fixture
def needs() -> Needs:
    """Leave a check out where nothing was found that lets it in; `named`: what would."""

    def check(named: str, found: list[str]) -> None:
        if not found:
            pytest.skip(f"NOT CHECKED: {named} is not set; {_HOW}")

    return check


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    ran = [kind for kind in ("passed", "failed", "error") if reporter.stats.get(kind)]
    if not ran:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line("\nNothing was checked: no service has a key.")
