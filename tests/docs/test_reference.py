"""Pages that are made from the code are the code's."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    printed = subprocess.run(
        [sys.executable, ROOT / "tools" / "command_line_reference.py"], capture_output=True, text=True, check=True
    ).stdout
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    assert page == printed, "run: .venv/bin/python tools/command_line_reference.py > docs/reference/command-line.md"


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
