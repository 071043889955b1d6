"""Which process of this machine has a port, for events of pods. Reads /proc."""

from pathlib import Path

from trainwright.cluster.linux.listening_sockets import ANY, find_holder, read_listeners
from trainwright.cluster.node.supervisor.files import read_json
from trainwright.objects.kinds.nodes import NODE_ADDRESS

_MAX_ANCESTORS = 100


def describe_holder(port: int, namespace: str, pods: Path) -> str:
    """For users of the namespace: the process, and its pod if it has one. Without its arguments, and without names of
    other namespaces. `pods` is the directory of the pods of the node."""
    listeners = [one for one in read_listeners() if one.port == port and one.address in {*ANY, NODE_ADDRESS, "::1"}]
    if not listeners:
        return "a process that has ended meanwhile"
    holder = find_holder(listeners[0].inode)
    if holder is None:
        return f"a process of user {listeners[0].uid}"
    pod = _pod_of(holder.pid, pods)
    if pod is None:
        return f"process {holder.pid} ({holder.name})"
    return f"process {holder.pid} of pod {pod[1]}" if pod[0] == namespace else "a pod of another namespace"


def _pod_of(pid: int, pods: Path) -> tuple[str, str] | None:
    """Namespace and name of the pod below whose supervisor the process is."""
    supervisors = {read_json(str(path), default={}).get("pid"): path.parent for path in pods.glob("*/supervisor.json")}
    for _ in range(_MAX_ANCESTORS):
        if pid in supervisors:
            pod = read_json(str(supervisors[pid] / "pod.json"), default={})
            return str(pod.get("namespace")), str(pod.get("name"))
        pid = _parent(pid)
    return None


def _parent(pid: int) -> int:
    """0 if the process has none, or has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text[text.rindex(")") + 2 :].split()[1])
