"""What a write makes of an object: create, update, patch, apply and delete as pure functions."""
