"""What launchers, containers and loggers write before each line of a program, removed.

A prefix is only what one of them writes in a fixed form: a time, a level, a process, a rank, the
name of a service. Several may stand one behind another.
"""

from __future__ import annotations

import re

_TIME = (
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"|\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
)
_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_PLACE = r"[\w./<>-]{1,80}:\d{1,6}(?::\w{1,60})?"
# Each in the form of what writes it; the digits of a bare `0: ` are Slurm's (srun --label).
_FORMS = (
    r"\[(?:rank|default|trainer|worker|Rank ?|RANK ?|rank ?)\d{1,5}(?:\|\d{1,5})?\]:?",  # torchrun
    r"\[\d{1,6},\d{1,6}\]<std(?:out|err)>:",  # mpirun --tag-output
    r"\d{1,5}: ",  # srun --label
    r"(?:[a-z][a-z-]{0,40}\d[a-z\d.-]{0,40}|\d{1,3}(?:\.\d{1,3}){3}|std(?:out|err)): ",  # pdsh
    r"\((?:[\w.:-]{1,80}(?:, | ))?(?:rank=\d{1,6}, )?pid=\d{1,8}(?:, ip=[\w.:]{1,45})?\)",  # Ray
    r"\((?:head|worker\d{0,5})(?:, rank=\d{1,6})?(?:, pid=\d{1,8})?(?:, ip=[\w.:]{1,45})?\)",
    r"[a-z][\w.]{0,40}-\d{1,4} {1,30}\| ",  # Docker Compose
    rf"(?:{_TIME}) (?:stdout|stderr) [FP] ",  # containerd
    rf"\[?(?:{_TIME})\]? ?\| ?{_LEVEL} {{0,10}}\| ?[\w.<>-]{{1,80}}:[\w<>]{{1,60}}:\d{{1,6}} - ",
    rf"{_LEVEL} {{1,4}}(?:{_TIME}) \[?{_PLACE}\]",  # vLLM
    rf"\[(?:{_TIME})\] ?\[{_LEVEL} {{0,4}}\](?: ?\[{_PLACE}\])?",  # DeepSpeed, logging
    rf"(?:{_TIME}) - [\w.]{{1,80}} - {_LEVEL} - ",  # logging, as in its documentation
    rf"{_LEVEL}:[\w.]{{1,80}}:",  # logging.basicConfig
    r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} {1,9}\d{1,8} [\w./-]{1,80}:\d{1,6}\] ?",  # glog
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} [\w./@-]{1,64}\[\d{1,8}\]: ",  # syslog
    rf"\[(?:{_TIME})\]",
    rf"(?:{_TIME})(?=[ :])",
)
# What stands before a traceback's first line stands before its other lines, in whatever form.
_BLOCK = re.compile(
    r"^([^\s|+'\"][^'\"]{0,118}?[\s|>\]:)]|[>\]:)])"
    r"(?=(?:Exception Group )?Traceback \(most recent call last\))"
)
_PREFIX = re.compile("(?:" + "|".join(_FORMS) + ")")
_MOST = 4


def without_prefix(line: str) -> str:
    """A line without the prefixes before it; its own indentation stays."""
    position = 0
    for _ in range(_MOST):
        begins = position
        while begins < len(line) and begins - position < 4 and line[begins] == " ":
            begins += 1
        match = _PREFIX.match(line, begins)
        if match is None:
            return line[position:]
        position = match.end()
        # One space separates; more of them belong to the line.
        if line[position - 1] != " " and line[position : position + 1] in (" ", ":"):
            position += 2 if line[position : position + 2] == ": " else 1
    return line[position:]


class BlockPrefix:
    """Removes what stands before the lines of a traceback, where no writer of prefixes is known by
    it (`node1: `, `stderr: `). Feed it line after line."""

    def __init__(self) -> None:
        self._prefix = ""

    def removed(self, line: str) -> str:
        """A line without its prefixes."""
        text = without_prefix(line)
        block = _BLOCK.match(text)
        if block:
            self._prefix = block[1]
        elif not text.startswith(self._prefix.rstrip()):
            self._prefix = ""
        return text[len(self._prefix) :]
