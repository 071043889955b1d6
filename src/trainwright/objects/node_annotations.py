"""Annotations by which jobs, pods and the embedded node tell each other what Kubernetes has no field for.

On other clusters they have no effect. They are part of the public surface: docs/reference/annotations-and-files.md.
"""

PREFIX = "node.trainwright.dev/"
"""Annotations of a job that begin so are handed on to its pods."""

PYTHON = f"{PREFIX}python"
"""On jobs and pods: the Python whose bin directory comes first in PATH."""

DIRECTORY = f"{PREFIX}directory"
"""On jobs and pods: where the manifest lies; the working directory of containers that name none."""

LISTEN_PORTS = f"{PREFIX}listen-ports"
"""On pods: the ports that must be free when their processes start, `23456` or `2222,2223`."""

SANDBOX = f"{PREFIX}sandbox"
"""On nodes and pods: the sandbox level in force."""

LISTENING_PORTS = f"{PREFIX}listening-ports"
"""On nodes: the ports of the machine that somebody listens on, `22,8080`."""

HOST_IMAGE = "trainwright/host"
"""The image that says: this machine's own files. Not an annotation, but an instruction all the same."""
