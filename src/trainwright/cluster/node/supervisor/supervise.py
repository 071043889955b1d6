"""What the agent runs, as `python -I -S supervise.py …`: finds the supervisor without any installed package."""

import os
import sys

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../..")))

    from trainwright.cluster.node.supervisor.supervisor import main

    main(sys.argv[1:])
