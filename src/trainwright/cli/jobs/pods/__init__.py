"""The pods of a job: which rank each has, their logs, commands and files in their containers, and how they end."""
