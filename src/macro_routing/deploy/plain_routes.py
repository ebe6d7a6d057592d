"""Formats that can only say which layer comes next refuse routes that say more."""

from __future__ import annotations

from macro_routing.errors import ExportError
from macro_routing.routes.route import Route


def reject_adds(route: Route, target: str) -> None:
    """Refuse a route with adds by its steps, and say where it can run."""
    adds = [f"step {number} ({step})" for number, step in enumerate(route.steps, 1) if step.add is not None]
    if adds:
        shown = ", ".join(adds[:4]) + (f" and {len(adds) - 4} more" if len(adds) > 4 else "")
        raise ExportError(
            f"--to {target} cannot express adds, and this route has them at {shown};"
            " use --to routed, which runs them in transformers, or `macro serve`;"
            " `macro search --no-adds` finds routes without any"
        )
