"""The answer of `install`."""

from trainmaster.answers.base import Answer
from trainmaster.answers.fields import field


class InstallAnswer(Answer):
    client: str = field(description="the program that the server was added to")
    config: str = field(description="its configuration file")
    entry: str = field(description="what stands there for this server, as JSON")
    skills: list[str] | None = field(
        default=None, description="folders of the skills, where it reads any"
    )
    changed: bool = field(description="whether anything was, or would be, written")
    written: bool = field(description="False for a dry run, and where all stood there already")
