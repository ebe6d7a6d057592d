"""Would a cheap measurement of the model tell a search where to begin? Block influence against recorded landscapes.

    python -m benchmarks.cheap_prior MODEL [MODEL …] [--data-dir FOLDER] [--write docs/data/cheap_prior.json]

Block influence is how much a layer changes the state on prompts of training examples, in the standard pass. A route
that leaves layers out, or applies some of them twice, changes as much as those layers do; how that goes together with
the route's recorded gain is what a prior of this kind would live on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import ROOT, write_record
from experiments.landscape import Landscape
from experiments.landscapes import SEED
from macro_routing.routes.route import Route

LANDSCAPES = ROOT / "docs" / "data" / "landscapes"
MOST = 10
COLUMNS = {
    "landscape": "landscape",
    "changed": "routes with",
    "routes": "routes",
    "correlation": "rank correlation of influence and gain",
    "least": f"mean gain of the {MOST} with least influence, points",
    "all": "of all, points",
    "best": f"of the best {MOST}, points",
}


def changed_layers(route: Route) -> tuple[str, list[int]] | None:
    """Which layers a route leaves out, or applies more than once; None for routes that do both, or add."""
    counts = np.bincount([step.layer for step in route.steps], minlength=route.layers)
    out, twice = np.flatnonzero(counts == 0), np.flatnonzero(counts > 1)
    if route.has_adds or route.is_standard or (len(out) > 0) == (len(twice) > 0):
        return None
    return ("layers left out", out.tolist()) if len(out) else ("layers applied again", twice.tolist())


def lines(landscape: Landscape, influence: Sequence[float]) -> Iterator[dict[str, Any]]:
    """A line per kind of route."""
    from scipy.stats import spearmanr  # type: ignore[import-untyped]

    found: dict[str, list[tuple[float, float]]] = {}
    for route in landscape.routes:
        if changed := changed_layers(route):
            kind, layers = changed
            total = sum(influence[layer] for layer in layers)
            found.setdefault(kind, []).append((total, 100 * landscape.gain(route)))
    about = landscape.about
    for kind, some in sorted(found.items()):
        influences, gains = np.array(some).T
        yield {
            "landscape": f"{about['task']}, {about['mode']}, {landscape.layers} layers",
            "changed": kind,
            "routes": len(some),
            "correlation": float(spearmanr(influences, gains).statistic),
            "least": float(gains[np.argsort(influences, kind="stable")[:MOST]].mean()),
            "all": float(gains.mean()),
            "best": float(np.sort(gains)[-MOST:].mean()),
            "influence": [round(one, 5) for one in influence],
        }


def influence_for(frozen: Any, landscape: Landscape, data_dir: Path | None) -> list[float]:
    """Block influence on the prompts of the landscape's training examples."""
    from macro_routing.evaluation.decoding import Decoding
    from macro_routing.evaluation.evaluator import Evaluator
    from macro_routing.runs.starting import influence_on
    from macro_routing.tasks import load_task, make_splits

    task = load_task(landscape.about["task"], data_dir=data_dir, seed=SEED)
    examples = make_splits(task, seed=SEED, training=1000, validation=100).train
    return influence_on(Evaluator(frozen, task, Decoding(landscape.about["mode"])), examples)


def main() -> None:
    """Measure, print, write on request."""
    from macro_routing.models import load_model

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    found = []
    for model in arguments.models:
        recorded = [Landscape.load(path) for path in sorted(LANDSCAPES.glob("*.json"))]
        mine = [one for one in recorded if one.about["model"] == Path(model).name]
        frozen = load_model(model) if mine else None
        for landscape in mine:
            for line in lines(landscape, influence_for(frozen, landscape, arguments.data_dir)):
                found.append(line)
                print({name: line[name] for name in COLUMNS}, flush=True)
    if arguments.write:
        names = " ".join(Path(model).name for model in arguments.models)
        command = f"python -m benchmarks.cheap_prior {names}"
        write_record(arguments.write, command=command, config={}, seed=SEED, columns=COLUMNS, results=found)


if __name__ == "__main__":
    main()
