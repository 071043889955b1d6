"""Which process of this machine has a port, for events of pods. Reads /proc."""

from pathlib import Path

from trainwright.cluster.linux.listening_sockets import find_holder, find_listener
from trainwright.cluster.node.supervisor.files import read_json, read_pod
from trainwright.cluster.node.supervisor.processes import list_processes
from trainwright.objects.kinds.nodes import NODE_ADDRESS


def describe_holder(port: int, namespace: str, pods: Path) -> str:
    """For users of the namespace: the process, and its pod if it has one. Without its arguments, and without names of
    other namespaces. `pods` is the directory of the pods of the node."""
    listener = find_listener(port, NODE_ADDRESS, "::1")
    if listener is None:
        return "a process that has ended meanwhile"
    holder = find_holder(listener.inode)
    if holder is None:
        return f"a process of user {listener.uid}"
    pod = _pod_of(holder.pid, pods)
    if pod is None:
        return holder.title
    return f"process {holder.pid} of pod {pod[1]}" if pod[0] == namespace else "a pod of another namespace"


def _pod_of(pid: int, pods: Path) -> tuple[str, str] | None:
    """Namespace and name of the pod below whose supervisor the process is."""
    supervisors = {read_json(str(path), default={}).get("pid"): path.parent for path in pods.glob("*/supervisor.json")}
    processes = list_processes("/proc")
    while pid in processes:
        if pid in supervisors:
            pod = read_pod(str(supervisors[pid]))
            return (pod["namespace"], pod["name"]) if pod is not None else None
        pid, _ = processes[pid]
    return None
