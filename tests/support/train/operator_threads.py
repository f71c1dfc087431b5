"""Which threads call PyTorch's operators.

Each thread that calls a parallel one opens an OpenMP pool of its own, and while there are two on
the same cores, every step of the training is slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function

_MARK = "the thread under test"
_BACKWARD = "autograd::engine::evaluate_function"


@contextmanager
def operators_in_this_thread_alone() -> Iterator[None]:
    """Watches all threads from the first backward pass on, or from the start where there is none:
    libraries load weights in threads that end before.

    Raises:
        AssertionError: another thread called an operator; it names them.
    """
    every_thread = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=every_thread) as profiled:
        with record_function(_MARK):
            torch.zeros(())
        yield
    events = profiled.profiler.kineto_results.events()  # type: ignore[union-attr]
    mark = next(event for event in events if event.name() == _MARK)
    passes = (event.start_ns() for event in events if event.name().startswith(_BACKWARD))
    begun_ns = min(passes, default=mark.start_ns())
    elsewhere = {
        event.name()
        for event in events
        if event.start_thread_id() != mark.start_thread_id() and event.start_ns() >= begun_ns
    }
    assert elsewhere == set(), f"called outside the training thread: {sorted(elsewhere)}"
