"""`python -m trainer_runtime.train.sample.average CONFIG REQUEST`, in the run's folder: writes the
average of checkpoints.

REQUEST is the file of an `AverageRequest`. The last line of the output is the `AverageAnswer`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainer_runtime.core.answers.averaged import AverageAnswer, AverageRequest
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.train.attempt.config import RunConfig
from trainer_runtime.train.sample.bounded import answer_within, yield_to_training


def main(config_path: str, request_path: str) -> int:
    """Average what is asked for; the exit code."""
    request = AverageRequest.of(decode_fields(Path(request_path).read_bytes(), "the request"))

    def answer(_: float) -> AverageAnswer:
        from trainer_runtime.train.checkpoints.averaged_folder import write_average

        yield_to_training()
        config = RunConfig.parse(Path(config_path).read_bytes(), config_path)
        return write_average(config, request)

    return answer_within(request.within_s, answer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
