"""The printer columns of the built-in kinds and of custom resources."""
