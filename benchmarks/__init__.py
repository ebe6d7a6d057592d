"""Measurements; each module is one command that prints its figures and can write them to ``docs/data``."""
