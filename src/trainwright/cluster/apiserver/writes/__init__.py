"""Create, update, patch, apply and delete as pure functions of objects, and the admission of writes."""
