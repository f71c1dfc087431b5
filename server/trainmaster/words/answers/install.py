"""The answer of `install`."""

from pydantic import Field

from trainmaster.words.answers.base import Answer


class InstallAnswer(Answer):
    client: str = Field(description="the program that the server was added to")
    config: str = Field(description="its configuration file")
    entry: str = Field(description="what stands there for this server, as JSON")
    skills: list[str] | None = Field(
        default=None, description="folders of the skills, where it reads any"
    )
    changed: bool = Field(description="whether anything was, or would be, written")
    written: bool = Field(description="False for a dry run, and where all stood there already")
