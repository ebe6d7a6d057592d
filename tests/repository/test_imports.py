"""No module imports itself through others; imports for type checkers and inside functions count, too."""

import ast
import graphlib
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def _module_name(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported_modules(path, modules):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in modules else node.module


def _find_cycle(graph):
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other_in_a_circle():
    modules = {_module_name(path): path for path in (SOURCE / "macro_routing").rglob("*.py")}
    graph = {
        name: {imported for imported in _imported_modules(path, modules) if imported in modules and imported != name}
        for name, path in modules.items()
    }
    assert len(graph) > 200
    assert not (cycle := _find_cycle(graph)), " is imported by ".join(cycle)


def test_a_circle_is_found():
    assert set(_find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()})) == {"a", "b", "c"}
    assert _find_cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
