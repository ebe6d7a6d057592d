"""Runs whose result is not a route: Dr.LLM's routers, which decide for each prompt, and CoLA's oracle.

Everything asked of the model goes through the score store, and the searches and the training are functions of the seed;
so a run that was stopped does the same again, and finds what was scored already known.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from macro_routing.engine.decoders import release_fused_decoder
from macro_routing.evaluation.model_answers import encode_prompts
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.peers.layer_router import LayerRouters, train_layer_routers
from macro_routing.peers.per_example_search import PerExampleSearch
from macro_routing.peers.program_router import ProgramRouters, train_program_routers
from macro_routing.routes.route import Route
from macro_routing.runs import folder as files
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.methods import METHODS
from macro_routing.runs.prepared_run import PreparedRun
from macro_routing.runs.progress import RoundReport
from macro_routing.runs.result import (
    ORACLE,
    ROUTER,
    STANDARD,
    RunResult,
    make_per_example_result,
    make_route_test_result,
)
from macro_routing.search.searcher import Draw, Proposal, Score, ScoringFailure, SearchState
from macro_routing.search.tree_actions import drllm_label_from_route
from macro_routing.search.tree_search import CORRECT_REWARD, TreeSearch
from macro_routing.tasks.task import Example
from macro_routing.workers.worker_settings import WorkerError

RouteOutcome = tuple[Route, ExampleOutcome | ScoringFailure]
"""A route that was asked for on some example, and what came of it."""
_MAX_KEPT_ROUTES = 200
EACH_PROMPT = "decided for each prompt"
ORACLE_PATHS = "the best found for each example, its answer known"


@dataclass(frozen=True, eq=False)
class PerExampleRun(PreparedRun):
    """What both kinds share: tree searches over examples, and answers with a route for each example."""

    searcher: PerExampleSearch

    def _run_tree_searches(self, folder: RunFolder, examples: Sequence[Example]) -> list[TreeSearch[Any]]:
        """Every example's search at its end, and what that took as the run's only round."""
        self.listener.on_stage("search", self.searcher.max_evaluations())
        evaluator = self.progress_reporting_evaluator
        seen: list[RouteOutcome] = []

        def score_pairs(asked: list[tuple[int, Route]]) -> list[float]:
            pairs = [(route, examples[number]) for number, route in asked]
            outcomes = evaluator.evaluate_pairs(pairs)
            seen.extend((route, outcome) for (route, _), outcome in zip(pairs, outcomes, strict=True))
            # A route that cannot be run neither answers correctly nor wrongly: no tree ends with it.
            return [0.0 if isinstance(outcome, ScoringFailure) else float(outcome.correct) for outcome in outcomes]

        if folder.read_round_reports():  # resumed after the searches: their answers are in the store
            return self.searcher.run_searches(score_pairs)
        with folder.time_round(1) as get_seconds:
            searches = self.searcher.run_searches(score_pairs)
            report = self._make_round_report(searches, seen, get_seconds())
            state = SearchState(self.searcher.identity, rounds=1, draws=_list_most_tried_routes(seen))
            folder.save_round(state, dataclasses.asdict(report))
        self.listener.on_round(report)
        return searches

    def _make_round_report(
        self, searches: Sequence[TreeSearch[Any]], seen: Sequence[RouteOutcome], seconds: float
    ) -> RoundReport:
        accuracy = statistics.mean(search.rewards[self.standard_route] for search in searches)
        low, high = wilson_interval(accuracy, len(searches))
        answered = [(route, outcome) for route, outcome in seen if not isinstance(outcome, ScoringFailure)]
        work = sum(route.length * (self.prompt_tokens + outcome.generated_token_count) for route, outcome in answered)
        return RoundReport(
            number=1,
            rounds=1,
            examples=len(searches),
            best=statistics.mean(search.label is not None for search in searches),
            median=None,
            stopped=0,
            different=len({route for route, _ in seen}),
            standard=accuracy,
            standard_low=low,
            standard_high=high,
            run=len(answered),
            saved=self.searcher.max_evaluations() - len(seen),
            truncated_share=statistics.mean(outcome.truncated for _, outcome in answered),
            seconds=seconds,
            asked=len(seen),
            work=work,
        )

    def _test_routes(self, folder: RunFolder, routes: Sequence[Route], kind: str) -> RunResult:
        """A route for each test example, beside the standard pass; the result is written."""
        test, standard_name = self.splits.test, str(self.standard_route)
        self.listener.on_stage("test", 2 * len(test))
        evaluator = self.progress_reporting_evaluator
        standard = evaluator.evaluate([self.standard_route], test)[self.standard_route].outcomes
        routed = _require_test_outcomes(routes, evaluator.evaluate_pairs(list(zip(routes, test, strict=True))))
        routed_name = EACH_PROMPT if kind == ROUTER else ORACLE_PATHS
        answers = {routed_name: routed, standard_name: standard}
        self.write_test_answers(folder, answers, decided=[str(route) for route in routes])
        length = statistics.mean(route.length for route in routes)
        variants = [
            make_route_test_result(METHODS[self.config.method].title, routed_name, length, routed),
            make_route_test_result(STANDARD, standard_name, self.standard_route.length, standard),
        ]
        layers, comparison = self.evaluator.frozen.layers, self.compare_with_standard(routed, standard)
        result = make_per_example_result(layers, variants, comparison, str(folder.path), kind)
        folder.write_json(files.RESULT, result.to_json())
        return result


@dataclass(frozen=True, eq=False)
class DrLLMRun(PerExampleRun):
    """Dr.LLM: labels from tree searches, routers trained on them, a decision for each prompt."""

    def search_and_test(self, folder: RunFolder) -> RunResult:
        """Search, decide and test."""
        searches = self._run_tree_searches(folder, self.splits.train)
        frozen, evaluator = self.evaluator.frozen, self.evaluator
        release_fused_decoder(frozen)  # it holds most of a GPU, which training and deciding need
        routers = self._train_routers(folder, searches)
        prompts = encode_prompts(frozen, evaluator.task, self.splits.test, evaluator.decoding)
        routes = [self.standard_route] * len(prompts) if routers is None else routers.decide_routes(frozen, prompts)
        return self._test_routes(folder, routes, ROUTER)

    def _train_routers(
        self, folder: RunFolder, searches: Sequence[TreeSearch[Any]]
    ) -> LayerRouters | ProgramRouters | None:
        """The routers; None where no example has a label, and every prompt takes the standard pass."""
        labels = [
            (self.splits.train[number], search.label)
            for number, search in zip(self.searcher.searched_example_indices, searches, strict=True)
            if search.label is not None
        ]
        self.listener.on_message(f"{len(labels)} of {len(searches)} examples have a label; training the routers")
        if not labels:
            return None
        frozen, task, decoding = self.evaluator.frozen, self.evaluator.task, self.evaluator.decoding
        prompts = encode_prompts(frozen, task, [example for example, _ in labels], decoding)
        routes = [route for _, route in labels]
        settings: Any = self.searcher.settings
        trained: tuple[LayerRouters | ProgramRouters, Any]
        if self.searcher.extended:
            space = self.searcher.space
            programs = [space.route_to_program(route) for route in routes]
            trained = train_program_routers(
                frozen, space, prompts, programs, settings.router_settings, self.config.seed
            )
        else:
            counts = [drllm_label_from_route(route) for route in routes]
            trained = train_layer_routers(frozen, prompts, counts, settings.router_settings, self.config.seed)
        routers, report = trained
        routers.save(folder.path / files.ROUTERS)
        folder.write_json(f"{files.ROUTERS}/training.json", dataclasses.asdict(report))
        return routers


@dataclass(frozen=True, eq=False)
class OracleRun(PerExampleRun):
    """CoLA: how many test examples some route gets right, the answer being known. An upper bound, not a method."""

    def search_and_test(self, folder: RunFolder) -> RunResult:
        """Search, decide and test."""
        searches = self._run_tree_searches(folder, self.splits.test)
        routes = [search.label or self.standard_route for search in searches]
        folder.write_json(files.ORACLE_COUNTS, count_oracle_corrections(searches, self.standard_route))
        return self._test_routes(folder, routes, ORACLE)


def count_oracle_corrections(searches: Sequence[TreeSearch[Any]], standard: Route) -> dict[str, Any]:
    """CoLA's two statements in counts: shorter paths for what was right, right ones for what was wrong."""
    right = [search for search in searches if search.rewards[standard] >= CORRECT_REWARD]
    wrong = [search for search in searches if search.rewards[standard] < CORRECT_REWARD]
    return {
        "already_right": len(right),
        "of_these_shorter": sum(search.label is not None and search.label.length < standard.length for search in right),
        "wrong": len(wrong),
        "of_these_fixed": sum(search.label is not None for search in wrong),
        "simulations": sum(search.statistics.simulations for search in searches),
        "most_children": max(search.statistics.max_children for search in searches),
    }


def _require_test_outcomes(
    routes: Sequence[Route], outcomes: Sequence[ExampleOutcome | ScoringFailure]
) -> list[ExampleOutcome]:
    """Outcomes on the test set; where one is missing there is no result, as with a route that was searched."""
    for route, outcome in zip(routes, outcomes, strict=True):
        if isinstance(outcome, ScoringFailure):  # answers that were never given do not count as wrong
            raise WorkerError(
                f"the route {route} could not be tested: it {outcome.reason}; fix the cause and resume the run"
            )
    return [outcome for outcome in outcomes if not isinstance(outcome, ScoringFailure)]


def _list_most_tried_routes(seen: Sequence[RouteOutcome]) -> tuple[Draw, ...]:
    """The routes that were tried on most examples, with what they made of them; all would fill a large file."""
    by_route: dict[Route, list[ExampleOutcome | ScoringFailure]] = {}
    for route, outcome in seen:
        by_route.setdefault(route, []).append(outcome)
    kept = sorted(by_route.items(), key=lambda item: -len(item[1]))[:_MAX_KEPT_ROUTES]
    return tuple(Draw(0, Proposal(route), _score_route_from_outcomes(outcomes)) for route, outcomes in kept)


def _score_route_from_outcomes(outcomes: Sequence[ExampleOutcome | ScoringFailure]) -> Score | ScoringFailure:
    """A route's answers as one score; a route that was given up has none, whatever it was right about before."""
    for outcome in outcomes:
        if isinstance(outcome, ScoringFailure):
            return outcome
    return Score(sum(outcome.correct for outcome in outcomes if not isinstance(outcome, ScoringFailure)), len(outcomes))
