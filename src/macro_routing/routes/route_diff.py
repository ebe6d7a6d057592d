"""The edits between two routes, step by step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from macro_routing.errors import RouteError
from macro_routing.routes.route import Route, Step

_MAX_STEPS = 2_000
"""Maximum length of a compared route: the time grows with the square of the length."""


@dataclass(frozen=True)
class RouteEdit:
    """Consecutive steps that differ between two routes."""

    kind: str
    """``added``, ``removed``, ``replaced``, or ``changed``: the same layer, another add."""
    old: tuple[Step, ...]
    new: tuple[Step, ...]
    old_start: int
    """Number of the first step in the old route, from 1; for added steps, of the step they come before."""
    new_start: int


def diff_routes(old: Route, new: Route) -> list[RouteEdit]:
    """The edits that turn ``old`` into ``new``; empty if both execute the same steps."""
    for route in (old, new):
        if route.length > _MAX_STEPS:
            raise RouteError(f"routes of up to {_MAX_STEPS} steps can be compared; this one has {route.length}")
    edits = [
        edit
        for kind, a, b, c, d in _align_steps(old.steps, new.steps)
        if kind != "equal"
        for edit in _split_off_add_changes(old.steps[a:b], new.steps[c:d], a, c)
    ]
    ends = [*(edit.old_start - 1 for edit in edits[1:]), old.length]
    return [_slide_edit_to_latest_position(edit, old, new, end) for edit, end in zip(edits, ends, strict=False)]


def _split_off_add_changes(
    old: Sequence[Step], new: Sequence[Step], old_start: int, new_start: int
) -> Iterator[RouteEdit]:
    """Split an edit where the layers match and only the adds differ."""
    names = {"delete": "removed", "insert": "added", "replace": "replaced"}
    for kind, a, b, c, d in _align_steps([step.layer for step in old], [step.layer for step in new]):
        if kind == "equal":
            for i, j in zip(range(a, b), range(c, d), strict=True):
                yield RouteEdit("changed", (old[i],), (new[j],), old_start + i + 1, new_start + j + 1)
        else:
            yield RouteEdit(names[kind], tuple(old[a:b]), tuple(new[c:d]), old_start + a + 1, new_start + c + 1)


def _align_steps(old: Sequence[object], new: Sequence[object]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def _slide_edit_to_latest_position(edit: RouteEdit, old: Route, new: Route, end: int) -> RouteEdit:
    """Move an added or removed block as late as possible: of two equal blocks the second is the repeat.

    ``end`` is the number of old steps before the next edit, over which a block must not move.
    """
    if edit.kind not in {"added", "removed"}:
        return edit
    added = edit.kind == "added"
    steps, first, count = (
        (new.steps, edit.new_start - 1, len(edit.new)) if added else (old.steps, edit.old_start - 1, len(edit.old))
    )
    shift = 0
    while edit.old_start - 1 + len(edit.old) + shift < end and steps[first + shift] == steps[first + count + shift]:
        shift += 1
    block = steps[first + shift : first + shift + count]
    return RouteEdit(
        edit.kind,
        () if added else block,
        block if added else (),
        edit.old_start + shift,
        edit.new_start + shift,
    )


def describe_edit(edit: RouteEdit) -> str:
    """One edit as a line, with the numbers of its steps."""
    first, count = (edit.new_start, len(edit.new)) if edit.kind == "added" else (edit.old_start, len(edit.old))
    numbers = f"step {first}" if count == 1 else f"steps {first}-{first + count - 1}"
    old_and_new = " → ".join(" ".join(map(str, steps)) for steps in (edit.old, edit.new) if steps)
    return f"{edit.kind} at {numbers}: {old_and_new}"


def describe_adds(route: Route) -> list[str]:
    """Every add with the step whose output it takes: the same text means another state after another past."""
    return [
        f"step {index + 1}: {step} takes the output of step {index - step.add.back}"
        f" (L{route.steps[index - step.add.back - 1].layer})"
        for index, step in enumerate(route.steps)
        if step.add is not None
    ]
