"""A found route where people already run their models."""
