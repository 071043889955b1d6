"""What commands print: lines on a terminal or elsewhere, tables, and objects as JSON or YAML."""
