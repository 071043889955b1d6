"""The program of supervisors, as `python -I -S supervise.py ARGUMENT`; needs no installed package.

The agent starts it as the fork server of all supervisors. With the directory of a pod it supervises that pod.
"""

import os
import sys

FORK_SERVER = "--fork-server="
"""Before the path of a pod's directory, as long as the longest one."""
ADDRESS_MARK = 3
"""The descriptor that all supervisors keep open: it shows that the addresses of their cluster are in use."""

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../..")))

    from trainwright.cluster.linux.sealed_program import ensure_sealed

    try:
        ensure_sealed()
        unsealed = ""
    except OSError as error:  # then detection refuses `overlay`
        unsealed = f"a copy of Python in memory cannot be executed: {error.strerror}"
    if sys.argv[1].startswith(FORK_SERVER):
        from trainwright.cluster.node.supervisor.fork_server_main import serve

        serve(ADDRESS_MARK)
    else:
        from trainwright.cluster.node.supervisor.pod_process import main

        main(sys.argv[1:], unsealed)
