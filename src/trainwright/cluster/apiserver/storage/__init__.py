"""Storage of objects in memory and in SQLite, with a watch cache."""
