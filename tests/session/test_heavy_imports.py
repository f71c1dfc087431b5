"""Collecting the tests stays cheap: every worker collects all of them."""

from __future__ import annotations

from support.session.heavy_imports import imported


def test_no_test_file_imports_a_heavy_library_before_its_tests_run() -> None:
    assert imported == []
