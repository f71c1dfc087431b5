"""The packages of frameworks: one set of versions that was tried together.

LitGPT wants huggingface-hub below 1.4 and the newest transformers one from 1.31 on, so the set is
not made of each package's newest version (resolved and run on Python 3.11 with torch 2.13.0).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Package:
    """`tried`: the version that an environment gets. `accepted`: those that an interpreter which is
    taken as it is may have instead. `marker`: of its line in the lock."""

    name: str
    tried: str
    accepted: str
    marker: str = ""

    @property
    def line(self) -> str:
        return f"{self.name}=={self.tried}"


# transformers from where our scripts' arguments have their names on, the others as it asks.
ACCELERATE = Package("accelerate", "1.15.0", ">=1.10.1,<2")
DATASETS = Package("datasets", "5.0.1", ">=4.7,<6")
DEEPSPEED = Package("deepspeed", "0.19.8", ">=0.16,<0.20")
PEFT = Package("peft", "0.21.2", ">=0.17,<0.22")
TRANSFORMERS = Package("transformers", "5.3.0", ">=4.56.2,<6")
PYTORCH_OPTIMIZER = Package("pytorch-optimizer", "4.1.0", ">=4,<5")
SHARED = (ACCELERATE, DATASETS, DEEPSPEED, PEFT, PYTORCH_OPTIMIZER, TRANSFORMERS)
