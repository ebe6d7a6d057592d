"""``macro store``: what scores are kept, and forgetting those of models and prompts no longer used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macro_routing.cli.console import print_json
from macro_routing.cli.help_groups import make_command_group
from macro_routing.errors import MacroError

if TYPE_CHECKING:
    from macro_routing.evaluation.score_store import ScoreStore, StoredScopeSummary

app = make_command_group(help="Look at the score store, or forget part of it.")
StoreOption = Annotated[
    Path | None, typer.Option("--store", help="The store's file.", show_default="in the cache folder")
]


def _open_existing_score_store(path: Path | None) -> ScoreStore:
    from macro_routing.evaluation.score_store import ScoreStore, default_store_path

    path = path or default_store_path()
    if not path.is_file():
        raise MacroError(f"there is no score store at {path}")
    return ScoreStore(path)


@app.command("info")
def list_store_contents(
    store: StoreOption = None, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """List what the store holds, one line per model, task and settings.

    Example: `macro store info`
    """
    opened = _open_existing_score_store(store)
    scopes = opened.list_score_scopes()
    size = opened.path.stat().st_size
    if as_json:
        rows = [
            {
                **scope.description,
                "model": scope.model,
                "made": scope.made,
                "outcomes": scope.outcomes,
                "routes": scope.routes,
            }
            for scope in scopes
        ]
        print_json({"path": str(opened.path), "bytes": size, "scopes": rows})
        return
    print(f"{opened.path}, {size / 2**20:.1f} MB")
    for number, scope in enumerate(scopes, 1):
        print(f"  {number:>3}  {_describe_stored_scope(scope)}")


def _describe_stored_scope(scope: StoredScopeSummary) -> str:
    task, mode = scope.description.get("task"), scope.description.get("decoding", {}).get("mode")
    model = f"{scope.model or 'a model'} ({str(scope.description.get('numerics', ''))[:8]}…)"
    return f"{task} {mode}, {model}: {scope.outcomes} scores of {scope.routes} routes, since {scope.made}"


@app.command("prune")
def delete_scores(
    task: Annotated[str | None, typer.Option(help="Forget this task's scores.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Forget a model's scores, by its name or the beginning of its id.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Forget all scores.")] = False,
    store: StoreOption = None,
) -> None:
    """Forget scores by task, by model, or all of them.

    Example: `macro store prune --task category`
    """
    if not everything and not task and not model:
        raise MacroError("say what to forget: --task, --model or --all")
    if everything and (task or model):
        raise MacroError("--all forgets the scores of every task and model; leave it out, or give it alone")

    def is_selected_scope(scope: Mapping[str, Any]) -> bool:
        numerics = str(scope.get("numerics", ""))
        by_task = not task or scope.get("task") == task
        return by_task and (numerics.startswith(model or "") or numerics in named)

    opened = _open_existing_score_store(store)
    named = {
        scope.description.get("numerics") for scope in opened.list_score_scopes() if model and scope.model == model
    }
    count = opened.delete_scopes(is_selected_scope)
    print(f"forgot {count} {'score' if count == 1 else 'scores'} in {opened.path}")
    if not count:
        print("nothing there matches; `macro store info` lists what it holds")
