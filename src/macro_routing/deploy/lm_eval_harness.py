"""The model ``macro`` of lm-evaluation-harness: its transformers model on a route or a mixture.

The harness has a registry of models and loads no entry points, so a program calls ``register_harness`` first. Where
choices are compared, a mixture's answer is the weighted sum of its members' log-likelihoods, as ``macro evaluate`` has
it: not normalized, and without the mask of implausible tokens, which only concerns what is written.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from tqdm import tqdm  # type: ignore[import-untyped]

from macro_routing.deploy.route_loading import load_route
from macro_routing.errors import ModelError
from macro_routing.models.catalog import fetch_model_folder
from macro_routing.models.find_decoder import count_model_layers
from macro_routing.models.mixing import add_weighted, apply_members, move_implausible_last
from macro_routing.models.routing import apply_route
from macro_routing.routes.mixture import Mixture, RouteOrMixture
from macro_routing.routes.notation import parse_route_or_mixture
from macro_routing.version import __version__

HARNESS_MODEL_NAME = "macro"
_ROUTE_FILE = "route.json"


def register_harness() -> None:
    """Make ``--model macro`` known to the harness."""
    register_model(HARNESS_MODEL_NAME)(RoutedHFLM)


class RoutedHFLM(HFLM):  # type: ignore[misc]  # the harness has no types
    """``HFLM`` on a ``route`` or mixture, for every model this project can name; other arguments are the harness's."""

    _model: Any
    _members: Any

    def __init__(
        self,
        pretrained: str,
        route: str = "L0 RJ",
        *,
        any_model: bool = False,
        allow_untested: bool = False,
        **arguments: Any,
    ) -> None:
        """Load the model ``pretrained`` and put it on ``route``: any notation, a route file, or a run's folder."""
        if arguments.get("delta"):
            raise ModelError("delta changes the weights a route was found on; merge it, save the result and use that")
        self._route_arguments = (str(route), any_model, allow_untested)
        self._requested_name = pretrained
        folder = fetch_model_folder(pretrained, revision=arguments.get("revision"))
        super().__init__(pretrained=str(folder), **arguments)

    def _create_model(self, *args: Any, **kwargs: Any) -> None:
        super()._create_model(*args, **kwargs)
        text, any_model, allow_untested = self._route_arguments
        model = self._model
        self._model = apply_route(model, _read_route(text, model, any_model=any_model), allow_untested=allow_untested)
        route = self._model.macro_route
        self._members = apply_members(model, route) if isinstance(route, Mixture) else None

    def loglikelihood_rolling(self, *args: Any, **kwargs: Any) -> Any:
        """Log-likelihoods of whole texts, for perplexities."""
        if self._members is not None:
            raise ModelError(
                "a mixture has no perplexity, because its weighted sums are not log-probabilities;"
                " leave out tasks with loglikelihood_rolling, or give a single route"
            )
        return super().loglikelihood_rolling(*args, **kwargs)

    def _loglikelihood_tokens(self, requests: Sequence[Any], *args: Any, **kwargs: Any) -> list[tuple[float, bool]]:
        if self._members is None:
            answers: list[tuple[float, bool]] = super()._loglikelihood_tokens(requests, *args, **kwargs)
            return answers
        return self._score_with_mixture(requests, *args, **kwargs)

    def _score_with_mixture(
        self, requests: Sequence[Any], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        """As the harness's own: for every continuation its log-likelihood, and whether greedy decoding writes it."""
        by_input: dict[tuple[int, ...], list[int]] = {}
        for index, (_, context, continuation) in enumerate(requests):
            text = (*context, *continuation)[-(self.max_length + 1) :]
            by_input.setdefault(text[:-1], []).append(index)
        inputs = sorted(by_input, key=len, reverse=True)
        size = override_bs or self.batch_size
        if size == "auto":
            size = self._detect_batch_size([max(requests, key=lambda request: len(request[1]) + len(request[2]))])
        answers: dict[int, tuple[float, bool]] = {}
        with tqdm(total=len(requests), disable=disable_tqdm or self.rank != 0) as progress:
            for start in range(0, len(inputs), size):
                batch = inputs[start : start + size]
                for tokens, logits in zip(batch, self._run_members(batch), strict=True):
                    for index in by_input[tokens]:
                        text, _, continuation = requests[index]
                        answers[index] = _score_continuation(logits, continuation, self._model.macro_route)
                        if text is not None:
                            self.cache_hook.add_partial("loglikelihood", text, answers[index])
                        progress.update()
        return [answers[index] for index in range(len(requests))]

    def _run_members(self, batch: Sequence[Sequence[int]]) -> Iterator[torch.Tensor]:
        """The logits of every text: members × positions × vocabulary."""
        rows = torch.zeros(len(batch), max(map(len, batch)), dtype=torch.long)
        for row, tokens in zip(rows, batch, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)  # what follows is never looked at
        precision = self.mixed_precision_dtype
        with torch.no_grad(), torch.autocast(self.device.type, precision, enabled=precision is not None):
            logits = self._members(rows.to(self.device), use_cache=False).logits
        by_text = logits.unflatten(0, (-1, len(batch))).unbind(1)
        return (values[:, : len(tokens)] for values, tokens in zip(by_text, batch, strict=True))

    def get_model_info(self) -> dict[str, Any]:
        """The model information that the harness saves, with the route."""
        route: RouteOrMixture = self._model.macro_route
        return {
            **super().get_model_info(),
            "macro_model": self._requested_name,
            "macro_route": str(route),
            "macro_route_length": route.length,
            "macro_layers": route.layers,
            "macro_version": __version__,
        }


def _score_continuation(logits: torch.Tensor, continuation: Sequence[int], mixture: Mixture) -> tuple[float, bool]:
    members = logits[:, -len(continuation) :].float()
    total = add_weighted(members.log_softmax(-1).unbind(), mixture)
    tokens = torch.tensor(continuation, device=total.device)
    greedy = move_implausible_last(total, members.unbind(), mixture).argmax(-1)
    return float(total.gather(1, tokens[:, None]).sum()), bool((greedy == tokens).all())


def _read_route(text: str, model: Any, *, any_model: bool) -> RouteOrMixture:
    path = Path(text)
    try:
        path = path / _ROUTE_FILE if (path / _ROUTE_FILE).is_file() else path
        is_file = path.is_file() or path.suffix == ".json"  # a mistyped file name gets its own error
    except OSError:  # too long for a file name
        is_file = False
    if is_file:
        return load_route(path, model, any_model=any_model)
    return parse_route_or_mixture(text, count_model_layers(model))
