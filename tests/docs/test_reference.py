"""Generated pages are up to date, lists are complete, and links lead to files."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_command_line_page_is_generated_from_the_commands() -> None:
    printed = subprocess.run(
        [sys.executable, ROOT / "tools" / "command_line_reference.py"], capture_output=True, text=True, check=True
    ).stdout
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    assert page == printed, "run: .venv/bin/python tools/command_line_reference.py > docs/reference/command-line.md"


def test_every_link_between_pages_leads_to_a_file() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", re.sub(r"`[^`\n]*`", "", page.read_text()))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_readme_of_the_support_package_lists_every_module() -> None:
    support = ROOT / "tests" / "support"
    sections = re.split(r"^## `(\w+)`", (support / "README.md").read_text(), flags=re.MULTILINE)
    rooms = {".": sections[0], **dict(zip(sections[1::2], sections[2::2], strict=True))}
    listed = {
        f"{room}/{module}.py"
        for room, text in rooms.items()
        for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
        for module in re.findall(r"`(\w+)`", row)
    }
    assert listed == {f"{path.parent.relative_to(support)}/{path.name}" for path in support.rglob("*.py")}
