"""The process of `trainwright up`, and what runs in it beside the embedded cluster."""
