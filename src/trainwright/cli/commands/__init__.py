"""One module per command of the same name; each defines it as `command` and is imported when the command is called."""
