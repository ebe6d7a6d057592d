"""How often choosing on validation examples would give the paper's main table: 67 wins, 11 ties, no loss.

    python -m experiments.paper_selection [--simulations 20000] [--write docs/data/paper_selection.json]

No model. In each of the 78 cells (six models, 13 benchmarks) every seed chooses among published ways to choose a route,
the standard pass among them, as the paper says: by accuracy on 100 or 200 validation examples, ties by accuracy on the
1,000 training examples. The published accuracies count as the true ones, and a seed's are spread as published. A route
and the standard pass disagree on a given share of the examples, or on as few as their difference allows if that is
more. A cell is won, tied or lost by the mean over three seeds.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import ROOT, write_record

PUBLISHED = ROOT / "tests" / "data" / "published_results.json"
OWN_RESULTS = ROOT / "docs" / "data" / "results.json"
SEED, SEEDS, TRAINING = 0, 3, 1000
ANCHORED = ("Qwen3-14B", "Mixtral", "DeepSeek")
"""Models whose validation sets have 200 examples; the others have 100."""
CANDIDATES = {
    "standard pass, top-1, no Vit.": ("MACRO (top-1)", "MACRO (no Vit.)"),
    "standard pass, top-1, no Vit., MACRO": ("MACRO (top-1)", "MACRO (no Vit.)", "MACRO"),
}
DISAGREEMENTS = (0.0, 0.02, 0.05, 0.1, 0.2)
TIE = 1e-9
COLUMNS = {
    "candidates": "candidates",
    "disagreement": "examples on which a route and the standard pass disagree (%)",
    "wins": "wins, mean",
    "ties": "ties, mean",
    "losses": "losses, mean",
    "fewest": "fewest losses",
    "without_loss": "simulations without a loss",
    "n": "simulations",
}
Gains = NDArray[np.float64]


class Cell(NamedTuple):
    """A model on a benchmark: published gains of the candidates over the baseline, as shares."""

    gains: tuple[float, ...]
    deviations: tuple[float, ...]
    """Over seeds."""
    validation: int


def read_cells(candidates: Sequence[str]) -> list[Cell]:
    """Those of the six main models."""
    rows = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    by_model: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_model.setdefault(row["model"], {})[row["method"]] = row["accuracy"]
    return [
        Cell(
            tuple((methods[name][task][0] - baseline) / 100 for name in candidates),
            tuple((methods[name][task][1] or 0) / 100 for name in candidates),
            200 if any(name in model for name in ANCHORED) else 100,
        )
        for model, methods in by_model.items()
        if all(name in methods for name in candidates)
        for task, (baseline, _) in methods["Baseline"].items()
        if task != "Avg"
    ]


def count_published() -> dict[str, int]:
    """Wins, ties and losses of MACRO as printed."""
    gains = [cell.gains[0] for cell in read_cells(["MACRO", "MACRO (top-1)"])]
    return {
        "wins": sum(gain > TIE for gain in gains),
        "ties": sum(abs(gain) <= TIE for gain in gains),
        "losses": sum(gain < -TIE for gain in gains),
    }


def measure_disagreement_of_our_routes() -> dict[str, float]:
    """On how many of its test examples a route of preset ``paper`` disagrees with the standard pass, in percent."""
    results = json.loads(OWN_RESULTS.read_text(encoding="utf-8"))["results"]
    comparisons = [row["raw"]["comparison"] for row in results if "raw" in row]
    shares = [100 * (one["fixed"] + one["broken"]) / one["n"] for one in comparisons if one["fixed"] + one["broken"]]
    return {"lowest": min(shares), "highest": max(shares), "n": len(shares)}


def draw_gains_of_seeds(cell: Cell, count: int, rng: np.random.Generator) -> Gains:
    """Gains by simulation, seed and candidate, with the published mean and deviation in every simulation."""
    spread = rng.standard_normal((count, SEEDS, 1))
    spread -= spread.mean(axis=1, keepdims=True)
    spread /= spread.std(axis=1, ddof=1, keepdims=True)
    return np.array(cell.gains) + np.array(cell.deviations) * spread


def draw_measured_gains(gains: Gains, disagreement: float, examples: int, rng: np.random.Generator) -> Gains:
    """Gains measured on so many examples: those that a route fixes less those that it breaks."""
    differing = np.clip(np.maximum(np.abs(gains), disagreement), 0, 1)
    changed = rng.binomial(examples, differing)
    fixed = rng.binomial(changed, np.clip((1 + gains / np.maximum(differing, TIE)) / 2, 0, 1))
    return (2.0 * fixed - changed) / examples


def simulate_cell(cell: Cell, disagreement: float, count: int, rng: np.random.Generator) -> Gains:
    """The gain of what is chosen, mean over seeds, by simulation."""
    true = draw_gains_of_seeds(cell, count, rng)
    validated = draw_measured_gains(true, disagreement, cell.validation, rng)
    trained = draw_measured_gains(true, disagreement, TRAINING, rng)
    standard = np.zeros((count, SEEDS, 1))
    # Validation decides; a training score is below 1, so it only parts equal validation counts.
    scores = np.concatenate([standard, np.round(validated * cell.validation) + trained / 2.5], axis=2)
    chosen = scores.argmax(axis=2)[..., None]
    selected: Gains = np.take_along_axis(np.concatenate([standard, true], axis=2), chosen, axis=2).mean(axis=(1, 2))
    return selected


def make_row(name: str, disagreement: float, simulations: int) -> dict[str, Any]:
    """All simulations with these candidates."""
    cells, rng = read_cells(CANDIDATES[name]), np.random.default_rng(SEED)
    gains = np.array([simulate_cell(cell, disagreement, simulations, rng) for cell in cells])
    losses = (gains < -TIE).sum(axis=0)
    return {
        "candidates": name,
        "disagreement": round(100 * disagreement),
        "wins": float((gains > TIE).sum(axis=0).mean()),
        "ties": float((np.abs(gains) <= TIE).sum(axis=0).mean()),
        "losses": float(losses.mean()),
        "fewest": int(losses.min()),
        "without_loss": int((losses == 0).sum()),
        "n": simulations,
    }


def main() -> None:
    """Simulate, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=20_000)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    rows = [make_row(name, share, arguments.simulations) for name in CANDIDATES for share in DISAGREEMENTS]
    for row in rows:
        print(row)
    if arguments.write:
        write_record(
            arguments.write,
            command=f"python -m experiments.paper_selection --simulations {arguments.simulations}",
            config={"published": count_published(), "disagreement_of_our_routes": measure_disagreement_of_our_routes()},
            seed=SEED,
            columns=COLUMNS,
            results=rows,
        )


if __name__ == "__main__":
    main()
