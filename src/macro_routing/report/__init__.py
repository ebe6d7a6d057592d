"""The pages people look at: self-contained HTML files and figures from runs' folders alone."""

from macro_routing.report.compare_page import write_comparison
from macro_routing.report.figure_files import write_figures
from macro_routing.report.methods_page import write_methods_page
from macro_routing.report.page import write_report

__all__ = ["write_comparison", "write_figures", "write_methods_page", "write_report"]
