"""How much text a program can be given: the kernel's limits of arguments and environment, checked before the text is
built. Pure."""

from collections.abc import Iterable, Mapping

from trainwright.cluster.node.referenced_objects import PodConfigError

MAX_STRING_BYTES = 131_071
"""The size of one argument, or of one variable as `NAME=value`: MAX_ARG_STRLEN without the final zero byte."""
MAX_PROGRAM_BYTES = 2 * 1024 * 1024
"""The size of arguments and environment, with a zero byte and a pointer each: what the kernel allows with the usual
stack limit of 8 MiB."""
MAX_POD_BYTES = 64 * 1024 * 1024
"""The size for all containers of a pod: thousands of containers can share long values."""
MAX_PATH_BYTES = 4095
"""PATH_MAX without the final zero byte."""

_PER_STRING = 1 + 8


def byte_size(text: str) -> int:
    """As the kernel counts it."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def check_string(what: str, size: int, limit: int = MAX_STRING_BYTES) -> None:
    """Raises PodConfigError; `what` names the container and the field."""
    if size > limit:
        raise PodConfigError(
            f"{what} has {size:,} bytes, and Linux allows {limit:,}: shorten it, or put the value into a file "
            "of a volume"
        )


class ProgramSize:
    """Counts arguments and environment of one program while they are made."""

    def __init__(self, container: str) -> None:
        self._container = container
        self._total = 0

    def add(self, field: str, size: int) -> None:
        """Counts one string; raises PodConfigError if the string or all of them are too long."""
        what = f'container "{self._container}": {field}'
        check_string(what, size)
        self._total += size + _PER_STRING
        if self._total > MAX_PROGRAM_BYTES:
            raise PodConfigError(
                f"{what}: arguments and environment together have more than {MAX_PROGRAM_BYTES:,} bytes, the limit of "
                "Linux: use fewer or shorter values, or put them into files of a volume"
            )

    def add_variable(self, name: str, value_size: int) -> None:
        self.add(f'env "{name}"', byte_size(name) + 1 + value_size)

    @property
    def total(self) -> int:
        return self._total


def check_program(container: str, arguments: Iterable[str], environment: Mapping[str, str]) -> int:
    """The number of bytes; raises PodConfigError if the kernel would not start such a program."""
    size = ProgramSize(container)
    for name, value in environment.items():
        size.add_variable(name, byte_size(value))
    for index, argument in enumerate(arguments):
        size.add(f"argument {index}", byte_size(argument))
    return size.total


def check_pod(size: int) -> None:
    """Raises PodConfigError; `size` is that of the programs of its containers so far."""
    if size > MAX_POD_BYTES:
        raise PodConfigError(
            f"arguments and environment of the containers of this pod have more than {MAX_POD_BYTES:,} bytes together: "
            "use fewer containers or shorter values"
        )
