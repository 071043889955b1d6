"""What a build tells its user, in the words of Docker's classic builder: its progress, why it failed, and why a RUN
line that fails on the host's files cannot work there."""

import re
import sys
from collections.abc import Mapping
from typing import TextIO

_PACKAGE_MANAGERS = {
    "apt": "Debian and Ubuntu",
    "apt-get": "Debian and Ubuntu",
    "aptitude": "Debian and Ubuntu",
    "dpkg": "Debian and Ubuntu",
    "add-apt-repository": "Ubuntu",
    "apt-add-repository": "Ubuntu",
    "apt-key": "Debian and Ubuntu",
    "yum": "Red Hat and Fedora",
    "dnf": "Red Hat and Fedora",
    "microdnf": "Red Hat and Fedora",
    "apk": "Alpine",
    "zypper": "SUSE",
    "pacman": "Arch",
}
_WORD = re.compile(
    rf"(?<![\w./-])({'|'.join(map(re.escape, sorted(_PACKAGE_MANAGERS, key=len, reverse=True)))})(?![\w./-])"
)


class BuildError(Exception):
    """The build cannot go on; one line that names the instruction, the cause and, if there is one, the fix."""


class Progress:
    def __init__(self, output: TextIO | None = None, *, quiet: bool = False) -> None:
        self._output = output or sys.stdout
        self.quiet = quiet

    def print(self, line: str) -> None:
        if not self.quiet:
            self._output.write(line + "\n")
            self._output.flush()

    def warning(self, text: str) -> None:
        self.print(f"[Warning] {text}")


def explain_host_failure(command: str, status: int, *, is_root: bool, system: str, base: str) -> str:
    """One sentence with the cause, for a command that failed on the host's files, which stand in for `base`."""
    match = _WORD.search(command)
    program = match[1] if match else ""
    if "ppa:" in command and "Ubuntu" not in system:
        cause = f"a PPA has packages for Ubuntu, and the files are those of this machine, {system}"
    elif program and status == 127:
        cause = f"{program} is of {_PACKAGE_MANAGERS[program]}, and the files are those of this machine, {system}"
    elif program and not is_root:
        cause = f"{program} needs root, and an ordinary user builds on the files of this machine"
    elif program:
        cause = f"{program} cannot change the files of this machine, {system}, as it would change those of {base}"
    else:
        cause = f"the files are those of this machine, {system}, not those of {base}"
    return f"{cause}; if the program does not need the line, add --skip-run {quoted_pattern(command, program)}"


def quoted_pattern(command: str, program: str) -> str:
    """A pattern for --skip-run that matches the command and others of the same program."""
    if program and command.split()[:1] == [program]:
        return f"'{program} *'"
    words = command.split()
    return f"'{words[0] if words else ''} *'" if "'" not in command else f'"{words[0]} *"'


def system_name(os_release: Mapping[str, str]) -> str:
    return os_release.get("PRETTY_NAME") or os_release.get("NAME") or "Linux"
