"""Validation losses that do not depend on how rows are put into batches."""

from __future__ import annotations

from typing import Any

import torch

# Labels that no loss is taken of, as in PyTorch.
_IGNORED = -100


def weigh_by_tokens(trainer: Any) -> None:
    """Make the trainer's `eval_loss` the mean over all tokens that are learnt.

    Trainer takes the mean of a batch's tokens as the loss of each of its rows, so that with rows of
    different lengths the result changes with the size of the batches.
    """
    predict, evaluate = trainer.prediction_step, trainer.evaluation_loop
    sums = torch.zeros(2, dtype=torch.float64)  # of losses, and of tokens

    def counted(model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        tokens = int((inputs["labels"][:, 1:] != _IGNORED).sum())
        answer = predict(model, inputs, *rest, **named)
        if tokens:
            sums.add_(torch.tensor([float(answer[0]) * tokens, tokens], dtype=torch.float64))
        return answer

    def weighted(*rest: Any, **named: Any) -> Any:
        sums.zero_()
        output = evaluate(*rest, **named)
        loss = f"{named.get('metric_key_prefix', 'eval')}_loss"
        of_all = trainer.accelerator.reduce(sums.to(trainer.args.device, torch.float32))
        output.metrics[loss] = float(of_all[0] / of_all[1])
        return output

    trainer.prediction_step, trainer.evaluation_loop = counted, weighted
