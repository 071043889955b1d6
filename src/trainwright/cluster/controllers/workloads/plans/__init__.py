"""What should change, decided from one object and its pods without any I/O; one module for each kind."""
