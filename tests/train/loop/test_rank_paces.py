"""The paces of ranks: measured in forward passes, aggregated, and found where one stays behind."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from trainer_runtime.core.diagnosis.detectors import Detectors, Settings
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.train.loop.rank_paces import ForwardTime, RankPaces

CONFIG = {
    "compute": {"processes": 4, "nodes": 2, "taking_part": [0, 2]},
    "nodes": {"hosts": [{"name": "gpu1"}, {"name": "gpu2"}, {"name": "gpu3"}]},
}


class Slow(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        began_s = time.perf_counter()
        while time.perf_counter() - began_s < 0.02:
            pass
        return inputs


def test_only_the_forward_passes_that_learn_are_timed() -> None:
    model = Slow()
    times = ForwardTime(model, is_cuda=False)
    for _ in range(2):
        model(torch.zeros(1))
    with torch.no_grad():
        model(torch.zeros(1))
    time.sleep(0.1)  # as a wait for other ranks
    assert 0.04 <= times.take() < 0.1
    assert times.take() == 0.0


def test_a_rank_that_stays_behind_is_found_with_its_host() -> None:
    events: list[dict[str, Any]] = []
    now_s = 0.0

    def emit(kind: str, **fields: Any) -> None:
        events.append({"kind": kind, **fields})

    paces = RankPaces(emit, lambda: now_s)
    for step in range(1, 100):
        now_s += 0.5
        paces.add(step, [0.1, 0.11, 0.19, 0.1])
    assert [event["step"] for event in events[:2]] == [4, 8]
    first = events[0]
    assert (first["kind"], first["ranks"]) == ("rank_metric", 4)
    assert first["pace"]["key"] == "forward_time_s" and first["pace"]["slowest"] == 2
    assert first["values"]["forward_time_s/ranks_max"] == 0.19

    detectors = Detectors(settings=Settings.from_config(CONFIG))
    for number, fields in enumerate(events):
        kind = fields.pop("kind")
        detectors.feed(Event(number, float(number), kind, fields), 1)
    (found,) = [one for one in detectors.findings() if one.code == "slow_rank"]
    assert "rank 2: forward_time_s 1.8" in found.evidence[0]
    assert "rank 2 is on the host gpu3" in found.evidence


def test_ranks_that_are_slow_in_turn_are_no_finding() -> None:
    events: list[dict[str, Any]] = []
    now_s = 0.0
    paces = RankPaces(lambda kind, **fields: events.append(fields), lambda: now_s)
    detectors = Detectors()
    for step in range(100):
        now_s += 2.0
        paces.add(step, [0.2 if step % 3 == rank else 0.1 for rank in range(3)])
        detectors.feed(Event(step, now_s, "rank_metric", events[-1]), 1)
    assert len(events) == 100
    assert [one.code for one in detectors.findings()] == []
