"""Public names of a package that are imported on first use, so that importing the package stays fast."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def make_lazy_imports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a package; ``modules`` maps each public name to its module."""

    def import_lazy_attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    def list_importable_names() -> list[str]:
        return sorted(name for name in modules if not name.startswith("__"))

    return import_lazy_attribute, list_importable_names
