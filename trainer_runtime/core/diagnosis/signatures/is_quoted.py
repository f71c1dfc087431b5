"""Whether a line reports a failure or only quotes one: code, data, a question, a note.

The text of a real failure starts its line, after the prefixes of loggers and launchers.
"""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.signatures.signature import Head

# Informational levels, shell traces, prompts and quoted mail.
_NEVER = re.compile(r"NCCL (?:INFO|TRACE) |^\s*(?:\++ |>>> |\.\.\. |> |\$ |#|//|\*{1,2} |<!--)")
_CODE = re.compile(
    r"\b(?:raise|except|assert|return|elif|import|echo|grep|throw|yield)\s"
    r"|\b(?:print\w*|str|repr|match|startswith|warn|log(?:ger|ging)?\.\w+|pytest\.\w+)\("
    r"|\b(?:\w*(?:Error|Exception|Warning)|error|fail|TORCH_CHECK|AT_ERROR)\(\s*[frb]?[\"']"
    r"|(?:^|\s)# |(?<!:)//|\"\"\"|\'\'\'|==\s*[\"']|=\s*[frb]{0,2}[\"']"
    r"|(?:^|[\s(=:,\[])[frb]?[\"'`]$"
)
# Keys of structured logs, after which a quoted text is the program's own.
_LOGGED = re.compile(
    r"(?:^|[\"'{,\s])(?:msg|message|error|err|exception|exc_info|traceback|stderr|log|event|reason|detail|"
    r"error_message)[\"']?\s*[:=]\s*[\"'][^\"']{0,80}$"
    r"|[Ff]ailure (?:\d+ )?'$"
)
_DATA = re.compile(
    r"(?<![\w.-])(?i:texts?|content|prompts?|completions?|inputs?|instruction|response|samples?|document|"
    r"generat(?:ed|ion|e)|question|answer|chosen|rejected|messages|user|assistant|human|story|"
    r"example|pred(?:iction)?|decoded|caption|title|reply|comment|hint|tip|faq|todo|[QA])"
    r"\b(?:\s*#?\d+)?[\"']?\s*[:=>\]]"
)
_ASKING = re.compile(
    r"\b(?:I(?!/)|my|you|your|we|how|why|what|when|they|he|she)\b(?!\(\))|\?", re.I
)
_TOKEN = re.compile(
    r"\s+"
    r"|(?:[^|\n]{0,60}\d{1,3}%)?\|[^|\n]{0,200}\| *[\d.]+[kMG]?/[\d.?]+[kMG]? \[[^\]]*\]"
    r"|(?:\w+\.)+(?=\w|$)"
    r"|\[[^\[\]]{0,160}\]|\([^()]{0,160}\)|<[^<>]{0,80}>"
    r"|\d[\d:.,T/+Z_-]*(?=[\s\]|:)-]|$)"
    r"|(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|[EWIF]\d{0,8}|NCCL|WARN|Exception|Error)\b"
    r"|(?:[A-Z][a-z]{2} ){1,2} ?\d{1,2}\b"
    r"|[\w.\-/<>@~+]+(?:\(\))?[:|]"
    r"|[|>*!=\-:;,·•~]+"
    r"|(?:[\w'()./-]{1,40} ){1,8}[\w'()./-]{1,40}:"
)


_SOURCE = re.compile(r"\b(?:raise|except|assert|return|elif|import|echo|print)\b|(?:^|\s)# ")
_QUOTED = re.compile(
    r"[\"'](?:text|content|prompt|completion|input|output|instruction|response|sample|question|"
    r"answer|chosen|rejected|messages)[\"']\s*:\s*\[?[\"'][^\"']*$"
)
# Continuations of a sentence about a failure.
_TALKING = re.compile(
    r"[\"'`”’]?\s+(?:means?|errors?|problems?|issues?|messages?|in (?:thought|my|the middle)|which|"
    r"because|can (?:be|happen)|usually|often|happens|occurs|as the|so the|so I|"
    r"and (?:the|then|I|we|you|so)|if you|when (?:I|you|we|the)|"
    r"is (?:a|an|the|caused|usually|what))\b"
    r"|[^.]{0,40}\?\s*$"
)
_RAISED = re.compile(r"^\s*(?:E\s+)?(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Hit): ")
_MAX_WORDS = 9
_LONGEST_HEAD = 500  # text further away is not considered
_WORD = re.compile(r"[A-Za-z][A-Za-z']*")
_SEPARATOR = re.compile(r".*[:\])|>]", re.DOTALL)


def is_quoted(line: str, start: int, end: int, head: Head) -> bool:
    """Whether the text from `start` to `end` of `line` is quoted, not reported as a failure."""
    is_raised = head is Head.RAISED and _RAISED.match(line) is not None
    if _NEVER.search(line) or (_TALKING.match(line, end) and not is_raised):
        return True
    skipped = " \t]:(|,.{\"'[/_" if head is Head.FIELDS else " \t]:(|,."
    while start < end and line[start] in skipped:
        start += 1
    before = line[max(0, start - _LONGEST_HEAD) : start]
    if not before.strip() or _LOGGED.search(before):
        return False
    if head is Head.FIELDS:
        return bool(_SOURCE.search(before) or _QUOTED.search(before))
    if is_raised:
        return bool(_DATA.search(before))
    if _CODE.search(before) or _DATA.search(before) or _ASKING.search(before):
        return True
    if len(_WORD.findall(_SEPARATOR.sub("", before))) > _MAX_WORDS:
        return True
    return head is Head.PREFIX and not _is_prefix(before)


def _is_prefix(before: str) -> bool:
    """Whether `before` consists of message prefixes only."""
    position = 0
    while position < len(before):
        token = _TOKEN.match(before, position)
        if token is None or token.end() == position:
            return False
        position = token.end()
    return True
