"""Reject routes with adds in formats that hold an order of layers only."""

from __future__ import annotations

from macro_routing.errors import ExportError
from macro_routing.routes.route import Route


def reject_adds(route: Route, target: str) -> None:
    """Reject a route with adds, name the steps, and say where it can run."""
    adds = [f"step {number} ({step})" for number, step in enumerate(route.steps, 1) if step.add is not None]
    if adds:
        shown = ", ".join(adds[:4]) + (f" and {len(adds) - 4} more" if len(adds) > 4 else "")
        raise ExportError(
            f"--to {target} cannot express adds, and this route has them at {shown};"
            " use --to routed, which runs them in transformers, or `macro serve`;"
            " `macro search --no-adds` finds routes without any"
        )
