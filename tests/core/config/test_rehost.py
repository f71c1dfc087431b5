"""The config of a run on another host than its first."""

from __future__ import annotations

from trainer_runtime.core.config.rehost import rehosted

BEFORE = {
    "steps": 60,
    "compute": {"threads": 1},
    "model": {"n_layer": 1, "path": "/old/cache/model"},
    "data": {"cache_dir": "/old/cache", "skip": [{"from": 3, "to": 5}]},
    "inputs": [{"folder": "/old/cache/model"}],
}
THERE = {
    "steps": 60,
    "compute": {"threads": 8},
    "model": {"n_layer": 1, "path": "/new/cache/model"},
    "data": {"cache_dir": "/new/cache", "skip": [], "upload": {"sources": {}}},
    "slurm": {"partition": "cpu"},
    "placement": 2,
}


def test_a_migrated_run_has_the_new_hosts_places_and_all_that_its_losses_follow_from() -> None:
    assert rehosted(BEFORE, THERE) == {
        "steps": 60,
        "compute": {"threads": 1},
        "model": {"n_layer": 1, "path": "/new/cache/model"},
        "data": {
            "cache_dir": "/new/cache",
            "skip": [{"from": 3, "to": 5}],
            "upload": {"sources": {}},
        },
        "slurm": {"partition": "cpu"},
        "placement": 2,
    }
