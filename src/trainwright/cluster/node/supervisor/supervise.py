"""The program that the agent starts for a pod, as `python -I -S supervise.py DIRECTORY`; needs no installed package."""

import os
import sys

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../..")))

    from trainwright.cluster.node.supervisor.pod_process import main

    main(sys.argv[1:])
