"""What the commands about existing jobs share: `references` finds the jobs that a user names, `session` connects to the
cluster, `summary` reduces a job to what a person wants to know, `pods` has what its pods show."""
