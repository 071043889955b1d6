"""The process that runs one pod: sandbox, containers, signals, restarts. Imports the standard library alone."""
