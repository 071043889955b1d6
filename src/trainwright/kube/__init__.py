"""Client and controller runtime for any cluster, embedded or real.

Nothing is imported here, so that the command line can use the blocking client without importing the asynchronous one.
"""
