"""A profile that is asked for before a training begins, and what has to hold of any."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.host.tiny_training import RunFolder

from trainer_runtime.core.protocol.profile import PROFILE_REQUEST, ProfileRequest


def ask(run: RunFolder, *, keeps_trace: bool = False, attempt: int = 1) -> None:
    """As a client does: the trainer sees it after its first step."""
    request = ProfileRequest("p1", attempt, keeps_trace=keeps_trace)
    (run.folder / PROFILE_REQUEST).write_text(json.dumps(request.to_dict()))


def profiles(run: RunFolder) -> list[dict[str, Any]]:
    """What the trainer answered, without what every event has."""
    own = ("v", "seq", "t", "kind")
    return [
        {key: value for key, value in event.items() if key not in own}
        for event in run.events()
        if event["kind"] == "profile"
    ]


def assert_plausible(profile: dict[str, Any]) -> None:
    """Ten steps of a small model on a CPU: their time is accounted for. How much of it each part
    takes depends on what else runs."""
    assert (profile["request"], profile["step"], profile["steps"]) == ("p1", 3, 10)
    host = profile["host"]
    assert sum(host.values()) == pytest.approx(1.0, abs=0.03)
    assert {"forward", "backward", "optimizer", "outside"} <= {*host}
    assert host["forward"] > 0 and host["backward"] > 0
    assert profile["device"] == "cpu" and profile["gpu"] == {} and "kernels" not in profile
    operators = profile["operators"]
    assert [one["share"] for one in operators] == sorted(
        (one["share"] for one in operators), reverse=True
    )
    assert 0 < sum(one["share"] for one in operators) <= 1.0
    assert not any(one["name"].startswith("trainmaster#") for one in operators)
    assert profile["step_ms"] > 0 and profile["added_s"] > 0 and profile["peak_memory_gib"] > 0.05
