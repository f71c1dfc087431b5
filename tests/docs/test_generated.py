"""The pages that are made from the code name their generator at the top."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_a_generated_page_names_its_generator_at_the_top() -> None:
    names = re.findall(r'^    "([\w-]+\.md)": ', (_ROOT / "scripts/make_docs.py").read_text(), re.M)
    assert len(names) >= 8
    tops = {name: (_ROOT / "docs" / name).read_text()[:300] for name in names}
    assert [name for name, top in tops.items() if "`scripts/make_docs.py`" not in top] == []
