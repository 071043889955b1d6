"""The devices of this machine that pods request as extended resources, and which pod has which."""
