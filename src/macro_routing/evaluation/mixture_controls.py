"""The mixture that a control finds: a simple rule over the scores of its routes on training examples."""

from collections.abc import Callable

from macro_routing.evaluation.mixture_weights import (
    ChoiceLabels,
    Evaluations,
    fit_mixture_of_all,
    fit_mixtures,
    make_mixture,
)
from macro_routing.routes.mixture import MAX_MEMBERS, RouteOrMixture, to_simplest_form
from macro_routing.search.decision_settings import DecisionSettings
from macro_routing.search.method_names import DOLA, PMI, READOUTS, ROUTE_AVERAGE, SKIP_LAYER_CD

_AVERAGED = 3
_FOLDS_SEED = 0


def find_control_mixture(
    control: str, evaluations: Evaluations, label_choices: Callable[[], ChoiceLabels]
) -> RouteOrMixture:
    """The control's mixture; ``evaluations`` are those of its sources, the standard pass first."""
    standard = next(iter(evaluations))
    if control == PMI:
        mixture = fit_mixture_of_all(evaluations, label_choices())
        return to_simplest_form(mixture) if mixture else standard
    if control == READOUTS:
        any_cost = DecisionSettings(members=MAX_MEMBERS)
        return [standard, *fit_mixtures(evaluations, label_choices(), any_cost, _FOLDS_SEED)][-1]
    runnable = [route for route, evaluation in evaluations.items() if not evaluation.failure]
    if control == ROUTE_AVERAGE:
        best = sorted(runnable, key=lambda route: -evaluations[route].score.correct)[:_AVERAGED] or [standard]
        return to_simplest_form(make_mixture(best, range(len(best)), [1.0] * len(best)))
    assert control in (DOLA, SKIP_LAYER_CD)
    contrasts = [route for route in runnable if not route.is_standard]
    return max(contrasts, key=lambda route: evaluations[route].score.correct, default=standard)
