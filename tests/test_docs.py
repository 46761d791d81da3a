"""Documentation says what is there: no gap left open, no link that leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_whole(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"\b[A-Z]+_TABLE\b", text), "a table was not filled in"
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert link.startswith("http") or (page.parent / link).exists(), f"{link} leads nowhere"
