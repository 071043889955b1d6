"""The strategies of pods and of the kinds that own pods."""
