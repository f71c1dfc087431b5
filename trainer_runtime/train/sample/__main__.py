"""`python -m trainer_runtime.train.sample CONFIG REQUEST`, in the run's folder: texts of its model.

REQUEST is the file of a `SampleRequest`. The last line of the output is the `SampleAnswer`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainer_runtime.core.answers.sampled import SampleAnswer, SampleRequest
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.train.sample.bounded import answer_within

_FOR_ANSWER_S = 2.0


def main(config_path: str, request_path: str) -> int:
    """Generate what is asked for; the exit code."""
    request = SampleRequest.of(decode_fields(Path(request_path).read_bytes(), "the request"))

    def answer(until_s: float) -> SampleAnswer:
        from trainer_runtime.train.sample.texts import write_texts

        return write_texts(Path(config_path), request, until_s - _FOR_ANSWER_S)

    return answer_within(request.within_s, answer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
