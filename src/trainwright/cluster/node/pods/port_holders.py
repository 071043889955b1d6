"""Which process of this machine has a port, for events of pods. Reads /proc."""

from trainwright.cluster.linux.listening_sockets import ANY, find_holder, read_listeners
from trainwright.cluster.node.supervisor.processes import read_environment
from trainwright.objects.kinds.nodes import NODE_ADDRESS

_NAME, _MARK = b"HOSTNAME=", b"GLOO_SOCKET_IFNAME=lo"
"""Variables of every container: a process that has both is one of a pod, which the first names."""


def describe_holder(port: int) -> str:
    """The process, and its pod if it has one. Without its arguments: tenants read events."""
    listeners = [one for one in read_listeners() if one.port == port and one.address in {*ANY, NODE_ADDRESS, "::1"}]
    if not listeners:
        return "a process that has ended meanwhile"
    holder = find_holder(listeners[0].inode)
    if holder is None:
        return f"a process of user {listeners[0].uid}"
    pod = _pod_of(holder.pid)
    return f"process {holder.pid} ({holder.name}{f' of pod {pod}' if pod else ''})"


def _pod_of(pid: int) -> str:
    variables = read_environment(pid)
    name = next((variable[len(_NAME) :] for variable in variables if variable.startswith(_NAME)), b"")
    return name.decode(errors="replace") if _MARK in variables else ""
