"""Folders of runs that never ran: every file as a run writes it, filled by hand."""

from dataclasses import asdict, replace

from macro_routing.routes.route import Route
from macro_routing.runs.folder import FORMAT, RunFolder
from macro_routing.runs.progress import RoundReport
from macro_routing.search.searcher import Draw, Proposal, Score, SearchState

LAYERS = 8
ROUTE = "L0-L4 L3 L3(+h-2) L6 RJ"
ATTACK = "<script>alert(1)</script>"
GIVEN = {
    "task": "toys",
    "model": "tiny",
    "preset": "quick",
    "method": "macro",
    "seed": 7,
    "racing": "exact",
    "max_minutes": None,
    "init_from": None,
    "loading": {},
    "data": {},
    "search": {},
}
ROUND = RoundReport(1, 3, 30, 0.6, 0.5, 2, 7, 0.4, 0.25, 0.57, 210, 60, 0.1, 12.5)


def header(**given):
    return {
        "format": FORMAT,
        "macro": "0.1.0",
        "started": "2026-01-02 03:04:05",
        "store": "/kept/scores.sqlite",
        "config": {
            "given": {**GIVEN, **given},
            "resolved": {
                "searcher": {"settings": {"iterations": 3, "draws": 9}, "space": {"coefficients": [1.0, -0.5]}},
                "decoding": {"mode": "direct"},
            },
        },
        "model": {"name": "tiny", "layers": LAYERS, "weights_id": "weights-digest"},
        "scope": {"numerics": "numerics-digest", "task": "toys", "prompts": "prompt-digest"},
        "splits": {"train": [90, "train-mark"], "validation": [20, "validation-mark"], "test": [40, "test-mark"]},
        "guards": {"other": {"validation": "guard-mark"}},
        "environment": {"Python": "3.11 on Linux", "cuda": "none"},
    }


def candidate(route, **other):
    defaults = {"length": 8, "program": None, "log_probability": None, "raw_rank": None, "rank": None}
    return {"route": route, **defaults, "correct": 9, "n": 20, "turned_down": "", **other}


def variant(name, route, correct):
    return {
        "name": name,
        "route": route,
        "length": 9,
        "correct": correct,
        "n": 40,
        "truncated_share": 0.05,
        "tokens": 31.5,
    }


def result(route=ROUTE):
    comparison = {"n": 40, "baseline": 0.5, "routed": 0.6, "fixed": 6, "broken": 2, "low": -0.03, "high": 0.22}
    names = ("MACRO", "MACRO (top-1)", "MACRO (no Vit.)")
    return {
        "route": route,
        "layers": LAYERS,
        "detectable": 0.19,
        "folder": "wherever",
        "variants": [*[variant(name, route, 24) for name in names], variant("standard", "L0 RJ", 20)],
        "comparison": {**comparison, "p_value": 0.29},
        "verdict": "No evidence of a gain: +10.0 points.",
    }


def outcome(correct, text):
    plain = {"reasoning_tokens": 3, "answer_tokens": 4, "reasoning_truncated": False, "answer_truncated": False}
    return {"correct": correct, "prediction": "5" if correct else "6", **plain, "reasoning": "", "text": text}


def answers(question="How many?", text="It is so.", fixed=6, broken=2, n=40):
    examples = [
        {"id": f"toys/{place}", "question": f"{question} #{place}", "answer": "5", "choices": [], "group": ""}
        for place in range(n)
    ]
    routed = [outcome(place < fixed or place >= fixed + broken, text) for place in range(n)]
    standard = [outcome(place >= fixed, text) for place in range(n)]
    return {"examples": examples, "routes": {ROUTE: routed, "L0 RJ": standard}}


def begin(path, rounds=3, **given):
    """A run that has searched so many rounds."""
    place = RunFolder.create(path)
    place.write_json("run.json", header(**given))
    state = SearchState("{}")
    place.save_round(state, None)
    for number in range(1, rounds + 1):
        draw = Draw(number - 1, Proposal(Route.standard(LAYERS)), Score(1, 2))
        state = replace(state, rounds=number, draws=(*state.draws, draw))
        place.save_round(state, asdict(replace(ROUND, number=number)))
    return place


def complete(path, told=None, **given):
    """A run that is finished."""
    place = begin(path, **given)
    refused = candidate("L0-L2 L2 RJ", rank=2, raw_rank=4, log_probability=-1.25, turned_down="it costs 3.0 points")
    found = candidate(ROUTE, rank=1, raw_rank=1, log_probability=-0.5)
    place.write_json(
        "candidates.json", {"chosen": ROUTE, "refused": "", "candidates": [candidate("L0 RJ"), found, refused]}
    )
    place.write_json("answers.json", told or answers())
    place.write_json("result.json", result())
    place.write_manifest()
    return place
