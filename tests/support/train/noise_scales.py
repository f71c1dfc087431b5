"""The gradient noise scales that a training reports, also one that is continued in the middle."""

from __future__ import annotations

from support.host.run_configs import Events

from trainer_runtime.train.loop.noise_scale import EVERY

# Behind the fourth measurement, the last before the first that is reported.
MIDDLE, STEPS = 4 * EVERY + 2, 7 * EVERY


def noise_scales(events: Events) -> dict[int, float]:
    """By step, where one was reported, which has to be from the fifth measurement on."""
    reported = {
        event["step"]: event["values"]["noise_scale"]
        for event in events
        if event["kind"] == "metric" and "noise_scale" in event["values"]
    }
    assert set(reported) <= {5 * EVERY, 6 * EVERY, 7 * EVERY}
    assert all(0 < scale < 1e6 for scale in reported.values())
    return reported
