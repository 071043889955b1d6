"""The served resources: names, strategies (defaults and validation) and printer columns."""
