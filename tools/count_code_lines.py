"""Counts lines of code: without blank lines, comments and docstrings.

`python tools/count_code_lines.py` prints the lines of every package below src/trainwright, or of the folders that it is
given. `--base REV` prints how many there were at a revision, and the difference.
"""

import argparse
import ast
import io
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def count_code_lines(source: str) -> int:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - set(_docstring_lines(ast.parse(source))))


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            docstring = node.body[0]
            yield from range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)


def count_by_package(folders: list[str], revision: str | None) -> Counter[str]:
    """The lines of code below the folders by package, in the working tree or at a revision."""
    counts: Counter[str] = Counter()
    for path in _python_files(folders, revision):
        counts[_package(path)] += count_code_lines(_read(path, revision))
    return counts


def _python_files(folders: list[str], revision: str | None) -> list[str]:
    if revision:
        paths = _git("ls-tree", "-r", "--name-only", revision, "--", *folders).splitlines()
    else:
        tracked = _git("ls-files", "--cached", "--others", "--exclude-standard", "--", *folders).splitlines()
        paths = [path for path in tracked if Path(path).exists()]
    return [path for path in paths if path.endswith(".py")]


def _package(path: str) -> str:
    """Two folders below the source tree, so that the packages of the embedded cluster are told apart."""
    return "/".join(PurePosixPath(path).parent.parts[:4])


def _read(path: str, revision: str | None) -> str:
    if revision:
        return _git("show", f"{revision}:{path}")
    return Path(path).read_text()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=["src"])
    parser.add_argument("--base", metavar="REV", help="compare with this revision")
    options = parser.parse_args()

    now = count_by_package(options.folders, None)
    before = count_by_package(options.folders, options.base) if options.base else None
    for package in sorted({*now, *(before or ())}):
        print(_row(package, now[package], None if before is None else before[package]))
    print(_row("total", now.total(), None if before is None else before.total()))


def _row(name: str, now: int, before: int | None) -> str:
    change = "" if before is None else f"  {before:6}  {now - before:+6}"
    return f"{name:44} {now:6}{change}"


if __name__ == "__main__":
    main()
