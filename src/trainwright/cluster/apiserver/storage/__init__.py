"""Objects in memory and in SQLite, with the history that watches replay."""
