"""OpenMP threads sleep while others use the cores, and spin again afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_runtime.train.loop.thread_waiting import ThreadWaiting

REPOSITORY = Path(__file__).parents[3]
# Prints the number of threads before, during and after a pool of idle ones; then the bits of
# trainings whose threads spin, sleep, and change between the two.
PROGRAM = """
import hashlib, importlib.util, os, sys, torch
from trainer_runtime.core.config.model import ModelConfig
from trainer_runtime.train.attempt.config import OptimizerConfig
from trainer_runtime.train.attempt.optimizer import clip_gradients, make_optimizer
from trainer_runtime.train.loop.thread_waiting import _OpenMP

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(2)
torch.ones(1 << 20).sum()
openmp = _OpenMP()
before = threads()
openmp.sleep()
openmp.sleep()
during = threads()
openmp.spin()
openmp.spin()
while threads() > before:
    os.sched_yield()
openmp.sleep()
print(before, during, threads(), float(torch.ones(1 << 20).sum()))

described = importlib.util.spec_from_file_location("script", sys.argv[1])
script = importlib.util.module_from_spec(described)
described.loader.exec_module(script)
sizes = {"n_layer": 1, "n_head": 4, "n_kv_head": 4, "d_model": 128, "d_ff": 512}
settings = ModelConfig(**sizes, vocab_size=257, dropout=0.1)
choices = OptimizerConfig(lr=1e-3)

def trained(sleeps):
    torch.manual_seed(1)
    model = script.GPT(settings, 64)
    optimizer, digest = make_optimizer(model, choices), hashlib.sha256()
    for step in range(6):
        openmp.sleep() if sleeps(step) else openmp.spin()
        tokens = torch.randint(257, (6, 64))
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(tokens, tokens)
        loss.backward()
        clip_gradients(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        digest.update(loss.detach().numpy().tobytes())
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()

print(trained(lambda _: False), trained(lambda _: True), trained(lambda step: step // 2 % 2))
"""


@pytest.fixture(scope="module")
def printed() -> list[list[str]]:
    """The words of each line that the program prints."""
    script = REPOSITORY / "tests" / "golden" / "scripts" / "nanogpt_gpt2.py"
    # In which they spin until they are to sleep.
    environment = {name: os.environ[name] for name in os.environ.keys() - {"OMP_WAIT_POLICY"}}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(script)],
        env={**environment, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stderr == ""
    return [line.split() for line in done.stdout.splitlines()]


class Recorded:
    """A switch that records how it was set."""

    def __init__(self) -> None:
        self.settings: list[str] = []

    def sleep(self) -> None:
        self.settings.append("sleep")

    def spin(self) -> None:
        self.settings.append("spin")


def settings(*shares: float) -> list[str]:
    """What is set when threads wait for a core by these shares of successive three seconds."""
    switch, waited_s = Recorded(), 0.0
    waiting = ThreadWaiting(switch, lambda: waited_s)
    waiting.step_ended(0.0)
    for period, share in enumerate(shares, start=1):
        waited_s += 3.0 * share
        waiting.step_ended(3.0 * period)
        waiting.step_ended(3.0 * period + 0.1)
    return switch.settings


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((0.0, 0.05, 0.25), []),
        ((0.9, 0.5, 0.5), ["sleep"]),
        ((0.9, 0.5, 0.02, 0.05), ["sleep", "spin"]),
        ((0.9, 0.2, 0.2), ["sleep"]),
    ],
)
def test_threads_sleep_while_they_wait_for_cores(
    shares: tuple[float, ...], expected: list[str]
) -> None:
    assert settings(*shares) == expected


def test_where_the_system_does_not_say_nothing_is_changed() -> None:
    switch = Recorded()
    waiting = ThreadWaiting(switch, lambda: None)
    for now_s in (0.0, 5.0, 10.0):
        waiting.step_ended(now_s)
    assert switch.settings == []


def test_the_pool_that_makes_threads_sleep_ends_when_they_spin_again(
    printed: list[list[str]],
) -> None:
    before, during, again, total = printed[0]
    assert int(during) == int(again) == int(before) + 1 + len(os.sched_getaffinity(0))
    assert float(total) == 1 << 20


def test_a_training_has_the_same_bits_however_its_threads_wait(printed: list[list[str]]) -> None:
    spinning, sleeping, changing = printed[1]
    assert spinning == sleeping == changing
