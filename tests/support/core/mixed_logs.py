"""Logs of lines of any kinds and ranks, whose steps rise, stay, fall and repeat themselves."""

from __future__ import annotations

import random
from collections.abc import Callable

# A line of each kind for a step and a loss; some have no step, some count by another clock.
_KINDS: list[Callable[[int, float], str]] = [
    lambda step, loss: f"iter {step}: loss {loss:.4f}, time 20.50ms, mfu -100.00%",
    lambda step, loss: f"iter {step}: loss {loss:.4f}, time 20.50ms, mfu 4.50%",
    lambda step, loss: f"step {step}: train loss {loss:.4f}, val loss {loss:.4f}",
    lambda step, loss: "saving checkpoint to out",
    lambda step, loss: "Training completed",
    lambda step, loss: f"Step {step:05d} | Validation bpb: {loss:.4f}",
    lambda step, loss: f"Peak memory usage: {loss * 1000:.2f}MiB",
    lambda step, loss: (
        f"Epoch 1 | iter {2 * step} step {step} | loss train: {loss:.3f}, val: n/a"
        " | iter time: 5.00 ms (step)"
    ),
    lambda step, loss: f"iter {2 * step}: val loss {loss:.4f}, val time: 7.76 ms",
    lambda step, loss: f"{{'loss': '{loss:.4g}', 'grad_norm': '1.06', 'epoch': '{step / 100}'}}",
    lambda step, loss: f"{{'loss': {loss:.9f}, 'grad_norm': 1.06, 'epoch': {step / 100}}}",
    lambda step, loss: f"{{'eval_loss': '{loss:.4g}', 'eval_runtime': '0.1', 'epoch': '0.5'}}",
    lambda step, loss: (
        f"{{'train_runtime': '1.3', 'train_loss': '{loss:.4g}', 'epoch': '0.6'}}\n"
        f"{{'train_runtime': 1.3001, 'train_loss': {loss:.6f}, 'epoch': 0.6}}"
    ),
    lambda step, loss: f" 9%|███    | {step}/{100 if step % 9 else 8} [00:01<00:02, 10.6it/s]",
    lambda step, loss: f'on_log {step} {{"loss": {loss:.4f}, "grad_norm": 1.0, "epoch": 0.5}}',
    lambda step, loss: "  Num examples = 100",
    lambda step, loss: f"  Num update steps per epoch = {50 if step % 9 else 40}",
    lambda step, loss: f"Epoch {step % 7}/10 - loss: {loss:.4f} - accuracy: 0.5",
    lambda step, loss: f"step={step} loss={loss} lr=0.0003 grad_norm=1.20",
    lambda step, loss: f'{{"event":"train","step":{step},"loss":{loss},"lr":0.0003}}',
    lambda step, loss: f"[step={step}/500]\n    train/CrossEntropyLoss={loss}",
    lambda step, loss: f"step={step} loss={loss}[rank0]: step={step + 1} loss={loss}",
]


def mixed_log(chosen: random.Random) -> bytes:
    """Lines of a few kinds and ranks that rise, stay, fall, begin again and repeat themselves."""
    kinds = chosen.sample(_KINDS, chosen.choice((1, 2, 2, 3, 4, 5)))
    steps = [0] * chosen.choice((1, 1, 1, 3))
    lines: list[str] = []
    for _ in range(chosen.choice((30, 200, 600))):
        rank = chosen.randrange(len(steps))
        change = chosen.random()
        if change < 0.75:
            steps[rank] += chosen.choice((1, 1, 1, 5))
        elif change < 0.85:
            steps[rank] = max(0, steps[rank] - chosen.choice((1, 3, 50)))
        elif change < 0.9:
            steps[rank] = chosen.choice((0, 1))
        loss = chosen.choice((1.5, 2.5, round(5 * chosen.random(), 4)))
        prefix = f"[rank{rank}]: " if len(steps) > 1 else ""
        made = chosen.choice(kinds)(steps[rank], loss).split("\n")
        lines += [prefix + line for line in made] * (2 if chosen.random() < 0.12 else 1)
    return ("\n".join(lines) + "\n").encode()
