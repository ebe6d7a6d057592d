"""The reference of the Python API: every public name with its signature, and the fields of what functions return."""

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

PUBLIC_PACKAGES = ("", "routes", "search", "tasks", "models", "evaluation", "runs", "report", "deploy")
"""Packages whose ``__all__`` is public; the empty name is the root package."""
RESULT_TYPES = {
    "evaluation": (
        "evaluation.outcomes.RouteEvaluation",
        "evaluation.outcomes.ExampleOutcome",
        "evaluation.statistics.PairedComparison",
        "evaluation.planted_problem.PlantedResult",
        "evaluation.own_objective.ObjectiveResult",
        "evaluation.final_decision.FinalistEvidence",
        "evaluation.gain_posterior.GainPosterior",
        "evaluation.outcomes.RacedRoundScores",
        "evaluation.score_store.StoredScopeSummary",
        "evaluation.work_items.EvaluatorSpec",
        "evaluation.work_items.WorkItem",
        "evaluation.work_items.WorkItemExecutor",
    ),
    "models": ("models.chat.ChatFormat", "models.chat.ThinkBlock"),
    "routes": ("routes.space.PartialProgramPosition",),
    "search": ("search.guided.GuidedState", "search.route_gp.GPKernelParameters"),
    "runs": (
        "runs.result.RouteTestResult",
        "runs.comparison_results.MethodRun",
        "runs.comparison_results.SearchCurvePoint",
        "runs.progress.RunPlan",
        "runs.progress.RoundReport",
    ),
}
"""Types that public functions take or return and no package exports, by the package under which they are described."""
SETTINGS = {
    "RunConfig": "#top-level",
    "LoadOptions": "#loading",
    "DecodingSettings": "#decoding",
    "RouteSpace": "#space",
    "UnitSizes": "#units",
    "DecisionSettings": "#decision",
    "GuidedSettings": "#search-with-method-guided",
    "MacroSettings": "#search-with-method-macro",
}
"""Settings, whose fields the page of the config file lists, and where."""
VALUES = {
    "BENCHMARKS": "The built-in benchmarks by name ([list](tasks.md#benchmarks)).",
    "GRADERS": "The built-in graders by name: `number`, `letter`, `math`, `text`.",
    "MODES": "The [modes](tasks.md#modes), in which a model answers: `reasoning`, `direct`, `likelihood`.",
    "SYNTHETIC_TASKS": "The tasks that are generated from the seed, by name ([list](tasks.md#benchmarks)).",
    "Outcome": "`Score`, `ScoringFailure` or `StoppedScore`.",
}
"""Public names that are neither functions nor classes."""
SHOWN_RESULTS = {"evaluate": "EvaluationSummary"}
"""Functions below which the fields of their result are listed."""
_WIDTH = 110
_EXAMPLE = re.compile(r"\n\n[^\n]*Example[^\n]*::\n.*", re.DOTALL)


def public_names() -> str:
    """Every public name with its signature, package by package, functions first, each described once."""
    parts, described = [], set()
    for package in PUBLIC_PACKAGES:
        module = import_module(f"macro_routing.{package}".rstrip("."))
        names = sorted((name for name in module.__all__ if name[0] != "_"), key=lambda name: (name[0].isupper(), name))
        parts += [f"## `{module.__name__}`", f"<!-- api {module.__name__} -->"]
        if again := [f"`{name}`" for name in names if name in described]:
            parts.append(f"Also here: {', '.join(again)}.")
        for name in names:
            if name not in described:
                parts += _describe(name, getattr(module, name))
                described.add(name)
        for path in RESULT_TYPES.get(package, ()):
            home, _, name = path.rpartition(".")
            parts += _describe(name, getattr(import_module(f"macro_routing.{home}"), name))
    return "\n\n".join(["", *parts, ""])


def _describe(name: str, value: Any) -> list[str]:
    heading = f"### `{name}`"
    if name in VALUES:
        return [heading, VALUES[name]]
    if not inspect.isclass(value):
        described = [heading, _prose(value), _block([_signature(_definition(value), value)])]
        if name in SHOWN_RESULTS:
            result = getattr(import_module("macro_routing.evaluation"), SHOWN_RESULTS[name])
            described += [f"The fields of `{SHOWN_RESULTS[name]}`:", _field_table(result)]
        return described
    parts = [heading, _prose(value)]
    if name in SETTINGS:
        return [*parts, f"Its fields: [config file](config.md{SETTINGS[name]})."]
    if name in SHOWN_RESULTS.values():
        function = next(function for function, result in SHOWN_RESULTS.items() if result == name)
        parts.append(f"Its fields: [`{function}`](#{function}).")
    elif _fields(value):
        parts.append(_field_table(value))
    if methods := [_signature(node, value) for node in _methods(value)]:
        parts.append(_block(methods))
    return parts


def _prose(value: Any) -> str:
    """The documentation without its example, as Markdown."""
    text = _EXAMPLE.sub("", inspect.getdoc(value) or "")
    return "\n\n".join(" ".join(part.split()) for part in text.replace("``", "`").split("\n\n"))


def _block(lines: Sequence[str]) -> str:
    return "\n".join(["```py", *lines, "```"])


@cache
def _definition(value: Any) -> Any:
    """The syntax tree of a function or class."""
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


def _signature(node: ast.FunctionDef, owner: Any) -> str:
    """Name, arguments and result as in the source; one argument a line where it is long."""
    given, names = node.args, vars(sys.modules[owner.__module__])
    arguments = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(arguments) - len(given.defaults)) + list(given.defaults)
    shown = [
        _argument(*pair, names) for pair in zip(arguments, defaults, strict=True) if pair[0].arg not in {"self", "cls"}
    ]
    if given.vararg:
        shown.append("*" + _argument(given.vararg, None, names))
    elif given.kwonlyargs:
        shown.append("*")
    shown += [_argument(*pair, names) for pair in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        shown.append("**" + _argument(given.kwarg, None, names))
    result = f" -> {_type(node.returns)}" if node.returns and node.name != "__init__" else ""
    is_of_class = {"classmethod", "staticmethod"} & set(map(ast.unparse, node.decorator_list))
    name = {"__init__": owner.__name__}.get(node.name, f"{owner.__name__}.{node.name}" if is_of_class else node.name)
    line = f"{name}({', '.join(shown)}){result}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in shown), f"){result}"])


def _argument(node: ast.arg, default: ast.expr | None, names: Mapping[str, Any]) -> str:
    """An argument with its type and default; constants are shown by their value."""
    text = f"{node.arg}: {_type(node.annotation)}" if node.annotation else node.arg
    if default is None:
        return text
    value = names.get(default.id) if isinstance(default, ast.Name) else None
    return f"{text} = {repr(value) if isinstance(value, str | int) else ast.unparse(default)}"


def _type(node: ast.expr | None) -> str:
    """A type without what only checks its values."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
        assert isinstance(node.slice, ast.Tuple)
        return _type(node.slice.elts[0])
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(node) if node else ""


def _fields(value: type) -> list[str]:
    """A row for every field of a dataclass or named tuple and every property; a subclass replaces what it names."""
    kept = {item.name for item in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    kept |= set(getattr(value, "_fields", ()))  # of a named tuple
    rows: dict[str, str] = {}
    for owner in reversed([one for one in value.__mro__ if one.__module__.startswith("macro_routing")]):
        body = _definition(owner).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in kept:
                text = after.value.value if _is_text(after) else ""
                rows[node.target.id] = _row(node.target.id, _type(node.annotation), text)
            elif isinstance(node, ast.FunctionDef) and _is_property(node):
                rows[node.name] = _row(node.name, _type(node.returns), ast.get_docstring(node) or "")
    return [row for name, row in rows.items() if name[0] != "_"]


def _field_table(value: type) -> str:
    return "\n".join(["| field | type | meaning |", "| --- | --- | --- |", *_fields(value)])


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_property(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(one) in {"property", "cached_property"} for one in node.decorator_list)


def _row(name: str, kind: str, text: str) -> str:
    meaning = " ".join(text.split("\n\n", maxsplit=1)[0].replace("``", "`").split())
    cells = (cell.replace("|", "\\|") for cell in (f"`{name}`", f"`{kind}`", meaning))
    return f"| {' | '.join(cells)} |"


def _methods(value: type) -> Iterator[ast.FunctionDef]:
    """The public methods that the class itself defines; of a class that is no dataclass the constructor, too."""
    for node in _definition(value).body:
        if not isinstance(node, ast.FunctionDef) or _is_property(node):
            continue
        if node.name[0] != "_" or (node.name == "__init__" and len(node.args.args + node.args.kwonlyargs) > 1):
            yield node
