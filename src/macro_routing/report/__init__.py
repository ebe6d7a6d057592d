"""Reports people look at: self-contained HTML pages and figures, from run folders alone.

Public names are imported on first use.
"""

from typing import TYPE_CHECKING

from macro_routing.lazy_imports import make_lazy_imports

if TYPE_CHECKING:
    from macro_routing.report.figure_files import write_figures
    from macro_routing.report.method_comparison_page import write_method_comparison
    from macro_routing.report.run_comparison_page import write_run_comparison
    from macro_routing.report.run_page import write_report

__all__ = ["write_figures", "write_method_comparison", "write_report", "write_run_comparison"]
__getattr__, __dir__ = make_lazy_imports(
    __name__,
    {
        "write_figures": "figure_files",
        "write_method_comparison": "method_comparison_page",
        "write_report": "run_page",
        "write_run_comparison": "run_comparison_page",
    },
)
