"""What pods leave on the disk: logs, private files and records of their runs, and how long they are kept."""
