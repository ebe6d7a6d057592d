"""Where a search begins: the prior, or what an earlier run or a known route teaches."""

import json
from pathlib import Path

from macro_routing.errors import ModelError, RunError
from macro_routing.models.catalog import MessageCallback
from macro_routing.models.route_file_compatibility import IdentifiedModel, check_route_file_fits_model
from macro_routing.routes import Route, parse_route
from macro_routing.routes.mixture import require_single_route
from macro_routing.routes.notation import looks_like_route
from macro_routing.routes.route_file import is_route_file_text, parse_route_file
from macro_routing.runs.folder import RUN, RunFolder
from macro_routing.search import MarkovPolicy, Searcher, SearchState
from macro_routing.search.policy_search import PolicySearcherBase, PolicySearchState

_TRUST = 0.5
"""How much of the first policy is earlier knowledge; the rest is the prior, so that a search goes on exploring."""


def check_init_from_exists(init_from: str | None) -> None:
    """Reject what is neither a run's folder, a file nor the text of a route; needs no model."""
    if init_from is None:
        return
    try:
        if (Path(init_from) / RUN).is_file() or Path(init_from).is_file():
            return
        is_folder = Path(init_from).is_dir()
    except (OSError, ValueError):  # impossible as a file's name
        return
    if is_folder or not looks_like_route(init_from):
        raise RunError(
            f"init_from = {init_from[:200]!r} is neither a run's folder, nor a route file, nor a route such as"
            " 'L0-L7 L3-L9 RJ'"
        )


def check_init_from_fits(init_from: str | None, searcher: Searcher, layers: int) -> None:
    """Reject a search that starts from nothing, and the text of a route that it cannot reach; needs no model."""
    if init_from is None:
        return
    space = _require_policy_search(searcher).space
    try:
        is_text = not Path(init_from).exists()
    except (OSError, ValueError):  # impossible as a file's name
        is_text = True
    if is_text:
        space.check_route(parse_route(init_from, layers))


def _require_policy_search(searcher: Searcher) -> PolicySearcherBase:
    if isinstance(searcher, PolicySearcherBase):
        return searcher
    raise RunError(
        "only searches with a policy can start from earlier knowledge; leave out init_from, or use method = guided or"
        " macro"
    )


def make_initial_search_state(
    searcher: Searcher, init_from: str | None, model: IdentifiedModel, report: MessageCallback
) -> SearchState:
    """The state before the first round; an earlier run and a route file must belong to ``model``."""
    state = searcher.make_initial_state()
    if init_from is None:
        return state
    searcher = _require_policy_search(searcher)
    try:
        if (Path(init_from) / RUN).is_file():
            return _warm_start_policy_from_run(searcher, state, Path(init_from), model)
        text = Path(init_from).read_text(encoding="utf-8") if Path(init_from).is_file() else init_from
    except UnicodeDecodeError:
        raise RunError(f"{init_from} is neither a run's folder nor a route") from None
    except OSError:  # too long for a file's name: a route
        text = init_from
    route = _parse_notation_or_route_json(text, init_from, model, report)
    searcher.space.check_route(route)
    prior = searcher.policy(state)
    # A pseudo-count of one for the prior and one for the route: half of each row it visits.
    taught = prior.update_from_programs([route.program_with_earliest_rejoin()], [1.0], alpha=(1 - _TRUST) / _TRUST)
    return searcher.start_from_given_prior(taught)


def _parse_notation_or_route_json(text: str, source: str, model: IdentifiedModel, report: MessageCallback) -> Route:
    if not is_route_file_text(text):
        return parse_route(text, model.layers)
    route = check_route_file_fits_model(parse_route_file(text), model, source, report=report)
    return require_single_route(route, "--init-from")


def _warm_start_policy_from_run(
    searcher: PolicySearcherBase, state: SearchState, path: Path, model: IdentifiedModel
) -> SearchState:
    folder = RunFolder.open(path)
    _check_same_model(folder, model)
    earlier = folder.load_last_state()
    if not isinstance(earlier, PolicySearchState):
        raise RunError(f"{path} holds no policy to start from; it was not a search of MACRO's, or never began")
    own_space, earlier_space = json.loads(searcher.identity)["space"], json.loads(earlier.identity)["space"]
    if own_space != earlier_space:
        raise RunError(
            f"{path} searched another route space ({earlier_space}); start from it with the same [space] settings"
        )
    mixed = (1 - _TRUST) * searcher.policy(state).table + _TRUST * earlier.policy_table
    return searcher.start_from_given_prior(MarkovPolicy(searcher.space, mixed))


def _check_same_model(folder: RunFolder, model: IdentifiedModel) -> None:
    """Reject a run on other weights: what it learned about its layers says nothing about these."""
    with folder.explain_damaged_files(RUN):
        name, weights = (folder.read_json(RUN)["model"][key] for key in ("name", "weights_id"))
    if weights != model.weights_id:
        raise ModelError(
            f"{folder.path} searched on {name} ({weights}), not on {model.name} ({model.weights_id});"
            " to try what it found anyway give its route as text"
        )
