"""The strategies of the built-in kinds: defaults, validation, and which fields may change."""
