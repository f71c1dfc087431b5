from __future__ import annotations

import pytest
from support.core.metric_series import all_codes

from trainer_runtime.core.diagnosis.detectors import Detectors


def fed(shares: list[float]) -> Detectors:
    detectors = Detectors()
    for number, share in enumerate(shares, 1):
        detectors.point("loss", 50 * number, None, 3.0 - number / 100)
        detectors.point("dead_units", 50 * number, None, share)
        detectors.point("dead_units_layer", 50 * number, None, 3.0)
    return detectors


def test_units_that_die_are_found_where_they_began_to() -> None:
    detectors = fed([0.05, 0.1, 0.3, 0.55, 0.6, 0.62, 0.7])
    (finding,) = detectors.findings()
    assert (finding.code, finding.severity, finding.step) == ("dead_units", "warning", 200)
    assert "share of dead units 0.7, 0.05 at the fewest" in finding.evidence
    assert "the worst is layer 3" in finding.evidence


def test_units_that_come_back_close_the_finding() -> None:
    detectors = fed([0.05, 0.55, 0.6, 0.62, 0.3])
    assert detectors.findings() == [] and all_codes(detectors) == ["dead_units"]


@pytest.mark.parametrize(
    "shares",
    [
        [0.02, 0.03, 0.05, 0.08, 0.1, 0.2, 0.3, 0.4, 0.45],
        # As many from the start, as ReLU² has on few tokens.
        [0.7, 0.68, 0.66, 0.7, 0.72, 0.7, 0.71],
        # A single evaluation of another kind.
        [0.05, 0.05, 0.9, 0.05, 0.05, 0.9, 0.9, 0.05],
    ],
)
def test_healthy_shares_raise_no_alarm(shares: list[float]) -> None:
    assert all_codes(fed(shares)) == []
