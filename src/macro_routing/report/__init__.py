"""The page people look at: one self-contained HTML file from a run's folder alone."""

from macro_routing.report.page import write_report

__all__ = ["write_report"]
