"""What is wrong with a Dockerfile, and where."""


class DockerfileError(Exception):
    """A Dockerfile that cannot be built as it is written."""

    def __init__(self, message: str, *, line: int, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


class ExpansionError(Exception):
    """A word whose quotes or variables cannot be resolved."""
