"""Faults that are injected into a small search with workers; ``run_faults`` records how each run ends."""
