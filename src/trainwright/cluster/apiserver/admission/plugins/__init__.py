"""The built-in admission plugins, each by the name that the real server has for it."""
