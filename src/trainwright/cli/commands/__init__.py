"""One module per command of `trainwright`, imported when the command is called."""
