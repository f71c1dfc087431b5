"""The answer of `trust`."""

from pydantic import Field

from trainmaster.words.answers.base import Answer


class TrustAnswer(Answer):
    path: str = Field(description="what an agent's specs may run on this machine from now on")
    sha256: str = Field(description="of its content; another content is not trusted")
