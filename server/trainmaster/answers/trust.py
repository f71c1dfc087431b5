"""The answer of `trust`."""

from trainmaster.answers.base import Answer
from trainmaster.answers.fields import field


class TrustAnswer(Answer):
    path: str = field(description="what an agent's specs may run on this machine from now on")
    sha256: str = field(description="of its content; another content is not trusted")
