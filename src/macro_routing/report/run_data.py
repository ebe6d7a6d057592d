"""What a run's folder holds, read once, as far as the run came."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.errors import RunError
from macro_routing.report.policy_map import PolicyFrame
from macro_routing.routes.mixture import RouteOrMixture, parse_program_or_mixture
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.runs import folder as files
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.progress import RoundReport
from macro_routing.runs.result import RunResult
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.policy_search import PolicySearchState
from macro_routing.search.searcher import Draw

_MAX_FRAMES = 16
"""Maximum number of policies that are shown; of more, evenly spaced ones."""
_MAX_NAME = 80


@dataclass(frozen=True)
class RunData:
    """A run as it lies on disk; what it has not reached yet is None."""

    path: Path
    header: dict[str, Any]
    rounds: tuple[RoundReport, ...]
    draws: tuple[Draw, ...]
    policies: tuple[PolicyFrame, ...]
    """The policy before the first round and after later ones; empty for a search without one."""
    ended: dict[str, Any] | None
    choice: dict[str, Any] | None
    """Final candidates and which one was chosen."""
    result: RunResult | None
    answers: dict[str, Any] | None
    cost: dict[str, Any] | None
    """What the route costs; None if it was not measured."""
    is_finished: bool
    oracle: dict[str, Any] | None = None
    """Counts of what an oracle found."""

    @property
    def has_search_per_example(self) -> bool:
        """Whether every example had a search of its own."""
        return bool(self.resolved_config["searcher"].get("search") == "tree")

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return int(self.header["model"]["layers"])

    @property
    def title(self) -> str:
        """Model and task; a file by its own name, and long names are shortened."""
        model = Path(self.header["model"]["name"])
        names = (model.name if model.is_absolute() else str(self.header["model"]["name"]), self.task_name)
        return " on ".join(name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…" for name in names)

    @property
    def task_name(self) -> str:
        """What was asked."""
        return str(self.header["scope"].get("task", self.given_config["task"]))

    @property
    def chosen_by(self) -> str:
        """What chose the route; empty where the result is not a route."""
        if self.choice is None:
            return ""
        return "the final decision" if is_decided_by_test(self.choice) else "validation"

    @property
    def chosen_route(self) -> RouteOrMixture | None:
        """The chosen route or mixture, once there is one."""
        return None if self.choice is None else parse_program_or_mixture(self.choice["chosen"], self.layers)

    @property
    def chosen_single_route(self) -> Route | None:
        """The chosen route where it is no mixture."""
        return self.chosen_route if isinstance(self.chosen_route, Route) else None

    @property
    def generates_text(self) -> bool:
        """Whether answers are generated text, which can be truncated."""
        return self.answer_mode != "likelihood"

    @property
    def given_config(self) -> dict[str, Any]:
        """The configuration as given."""
        return dict(self.header["config"]["given"])

    @property
    def resolved_config(self) -> dict[str, Any]:
        """The configuration as resolved for this model."""
        return dict(self.header["config"]["resolved"])

    @property
    def sweeps_blocks(self) -> bool:
        """Whether the search went through repeated blocks; others meet one now and then, which makes no map."""
        return str(self.given_config["method"]).startswith("rys")

    @property
    def search_settings(self) -> dict[str, Any]:
        """The search's settings; how many rounds and draws there are at most is known of every method."""
        settings = dict(self.resolved_config["searcher"].get("settings", {}))
        if "search" in self.resolved_config:  # runs of earlier versions say it in their settings
            search = self.resolved_config["search"]
            settings |= {"iterations": search["rounds"], "draws": search["draws"]}
        return settings

    @property
    def answer_mode(self) -> str:
        """How answers were obtained."""
        return str(self.resolved_config["decoding"]["mode"])


def is_decided_by_test(choice: dict[str, Any]) -> bool:
    """Whether the final decision's test chose among the candidates, not validation alone."""
    return any("p_value" in candidate for candidate in choice["candidates"])


def load_run_for_report(path: str | Path) -> RunData:
    """A run's data from its folder; a folder without a run is rejected."""
    folder = RunFolder.open(Path(path))
    with explain_unreadable_run(folder.path):
        return _read_run(folder)


@contextmanager
def explain_unreadable_run(path: Path) -> Iterator[None]:
    """Turn contents of the wrong shape into an error that names the folder."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{path} holds a file of another shape than this version writes ({type(error).__name__}: {error});"
            " it cannot be shown"
        ) from None


def _read_run(folder: RunFolder) -> RunData:
    """Everything a report needs."""

    def read_optional_file(name: str) -> Any:
        return folder.read_json(name) if folder.has_file(name) else None

    result = read_optional_file(files.RESULT)
    header, last = folder.read_json(files.RUN), folder.load_last_state()
    return RunData(
        path=folder.path,
        header=header,
        rounds=tuple(RoundReport(**report) for report in folder.read_round_reports()),
        draws=() if last is None else last.draws,
        policies=_read_policies(folder, header),
        ended=read_optional_file(files.ENDED),
        choice=read_optional_file(files.CANDIDATES),
        result=None if result is None else RunResult.from_json(result),
        answers=read_optional_file(files.ANSWERS),
        cost=read_optional_file(files.COST),
        is_finished=folder.is_finished,
        oracle=read_optional_file(files.ORACLE_COUNTS),
    )


def _read_policies(folder: RunFolder, header: dict[str, Any]) -> tuple[PolicyFrame, ...]:
    states = [state for state in folder.load_evenly_spaced_states(_MAX_FRAMES) if isinstance(state, PolicySearchState)]
    if not states:
        return ()
    space = RouteSpace(**header["config"]["resolved"]["searcher"]["space"])
    return tuple(PolicyFrame(state.rounds, MarkovPolicy(space, state.policy_table)) for state in states)
