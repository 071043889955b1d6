"""Annotations of jobs, pods and the embedded node, for settings that have no field in Kubernetes.

On other clusters they have no effect. They are public: docs/reference/annotations-and-files.md lists them.
"""

PREFIX = "node.trainwright.dev/"
"""The pods of a job get its annotations with this prefix."""

PYTHON = f"{PREFIX}python"
"""On jobs and pods: the Python whose bin directory comes first in PATH."""

DIRECTORY = f"{PREFIX}directory"
"""On jobs and pods: the directory of the manifest; the default working directory of containers."""

LOG_MAX_SIZE = f"{PREFIX}log-max-size"
"""On jobs and pods: the size at which a log file of a container is rotated, a quantity such as `100Mi`."""

REPLICAS = f"{PREFIX}replicas"
"""On pods: how many replicas their job has, all of which share the cores of the node."""

SANDBOX = f"{PREFIX}sandbox"
"""On nodes and pods: their sandbox level."""

SHUTDOWN_RESTARTS = f"{PREFIX}shutdown-restarts"
"""On pods: how many restarts of their containers followed a shutdown of the cluster. They do not count as failures."""

HOST_FILES = f"{PREFIX}host-files"
"""On pods: the containers whose image lies over this machine's files, because its FROM could not be had."""

LISTENING = f"{PREFIX}listening"
"""On pods: the TCP ports on which their programs listen at the pod's address, `6006,23456`. The node writes it."""

HOST_IMAGE = "trainwright/host"
"""The image of pods that run on this machine's own files. It is not an annotation, but used in the same way."""

KUBECTL_DELIVERY_IMAGE = "trainwright/kubectl-delivery"
"""The image of the init container that puts kubectl into launchers of MPIJobs: every node has it."""
