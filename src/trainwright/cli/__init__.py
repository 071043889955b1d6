"""The `trainwright` command. Each command is a module of its own that is imported when it is called."""
