"""Reports people look at: self-contained HTML pages and figures, from run folders alone."""

from macro_routing.report.figure_files import write_figures
from macro_routing.report.method_comparison_page import write_method_comparison
from macro_routing.report.run_comparison_page import write_run_comparison
from macro_routing.report.run_page import write_report

__all__ = ["write_figures", "write_method_comparison", "write_report", "write_run_comparison"]
