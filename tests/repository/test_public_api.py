"""The public Python names: the list, their docstrings, and that importing the package is fast."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import macro_routing

ROOT = Path(__file__).parents[2]
ROOMS = ("routes", "search", "tasks", "models", "evaluation", "runs", "report", "deploy")
PUBLIC = {
    "Member",
    "Mixture",
    "Program",
    "Route",
    "__version__",
    "apply_route",
    "evaluate",
    "load_model",
    "load_route",
    "load_task",
    "maximize_objective",
    "parse_mixture",
    "parse_route",
    "parse_route_or_mixture",
    "register",
    "search_routes",
}


def test_the_public_names():
    assert set(macro_routing.__all__) == PUBLIC
    assert set(dir(macro_routing)) == PUBLIC - {"__version__"}


@pytest.mark.parametrize("package", ["macro_routing", *(f"macro_routing.{room}" for room in ROOMS)])
def test_public_names_resolve_and_are_documented(package):
    module = import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{package}.{name}"
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        _ = module.missing


@pytest.mark.parametrize(
    "package", ["macro_routing", "macro_routing.models", "macro_routing.runs", "macro_routing.deploy"]
)
def test_importing_a_package_loads_no_heavy_library(package):
    program = (
        f"import sys, {package}\n"
        "print(*{'torch', 'transformers', 'scipy', 'matplotlib', 'datasets'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()


def test_the_library_page_uses_public_names_only():
    page = (ROOT / "docs" / "tutorials" / "library.md").read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("macro_routing"):
                public = import_module(node.module).__all__
                assert {alias.name for alias in node.names} <= set(public), node.module
                assert node.module.count(".") <= 1, node.module


def test_every_type_in_the_reference_is_described_there():
    """Types of this package: under a heading, or in the introduction, as "`Interval` is"."""
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "src" / "macro_routing").rglob("*.py")]
    own = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    own |= {node.targets[0].id for tree in trees for node in tree.body if _is_alias(node)}
    signatures = "\n".join(re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    types = "\n".join(re.findall(r"^\| `\w+` \| `([^`]*)` \|", page, re.MULTILINE))
    named = set(re.findall(r"\b[A-Z]\w+", signatures + types)) & own - {"Value"}  # a type variable
    assert len(named) > 40
    assert named - set(re.findall(r"^### `(\w+)`", page, re.MULTILINE)) <= set(re.findall(r"`(\w+)`\s+is\b", page))


def _is_alias(node):
    """Whether a statement gives a type a name, as ``Interval = tuple[float, float]`` does."""
    name = getattr(node.targets[0], "id", "") if isinstance(node, ast.Assign) else ""
    return name[:1].isupper() and not name.isupper() and not isinstance(node.value, ast.Call)
