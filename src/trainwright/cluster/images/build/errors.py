"""Why a build failed."""


class BuildError(Exception):
    """The build cannot go on; one line that names the instruction, the cause and, if there is one, the fix."""
