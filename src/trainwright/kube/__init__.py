"""How to talk to any cluster, embedded or real: kubeconfig, client, informers, work queue, leases, events.

Nothing is imported here, so that the command line can use the blocking client without paying for the asynchronous one.
"""
