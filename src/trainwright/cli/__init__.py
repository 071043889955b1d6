"""The `trainwright` command line.

`commands/` has one module per command, `flags.py` the flags that several commands share, `targets.py` the choice of the
cluster, `jobs/` how jobs are named, found and printed, `manifests/` what `run` does before and when it applies files,
`follow/` how it follows jobs afterwards, `history.py` the record of finished runs.
"""
