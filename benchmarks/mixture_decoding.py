"""Time of a mixture that writes, against the sum of its members' times; with the fused decoder where there is a GPU.

    python -m benchmarks.mixture_decoding MODEL [--prompts 145] [--tokens 256] [--data-dir FOLDER]
        [--write docs/data/mixture_decoding.json]

On a CPU decoding is eager, and seconds are those of the processor. Every row writes to its budget. Exits with 1 when
the target is missed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.record import write_record
from macro_routing.engine.batching import Tokens
from macro_routing.engine.decoders import get_fused_decoder
from macro_routing.engine.generation import DecodingStage, GenerationRequest
from macro_routing.engine.route_generation import generate_for_routes
from macro_routing.evaluation.bench import measure_seconds
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.model_answers import encode_prompts
from macro_routing.models import load_model
from macro_routing.routes import Route
from macro_routing.routes.mixture import Mixture, RouteOrMixture
from macro_routing.tasks import load_task, make_splits

SEED = 0
MOST = 1.1
"""Target: time of a mixture over the sum of its members' times."""
_TURNS = 2
COLUMNS = {
    "mixture": "mixture",
    "layers": "layers applied per token",
    "members_layers": "of its members, one by one",
    "seconds": "seconds",
    "members_seconds": "of its members, one by one",
    "ratio": "ratio",
    "target": "at most",
    "decoder": "decoder",
}


def list_mixtures(layers: int) -> list[Mixture]:
    """Members that share most, half, and nothing of their layers; two and three of them."""
    plain = list(range(layers))

    def make_mixture(*skipped: int) -> Mixture:
        weaker = [Route.from_layers([*plain[:layer], *plain[layer + 1 :]], layers) for layer in skipped]
        members = [(route, -0.5 / len(weaker)) for route in weaker]
        return Mixture.from_weights([(Route.standard(layers), 1.5), *members])

    return [make_mixture(layers - 2), make_mixture(layers // 2), make_mixture(0), make_mixture(0, layers // 2)]


def time_mixture(
    write: Callable[[RouteOrMixture], Any], mixture: Mixture, measure: Callable[..., tuple[float, Any]]
) -> dict[str, Any]:
    """A mixture and its members, turn by turn; the fastest turn counts."""
    arms: list[RouteOrMixture] = [mixture, *mixture.routes]
    for arm in arms:
        write(arm)  # what is done once is not timed
    turns = [[measure(write, arm)[0] for arm in arms] for _ in range(_TURNS)]
    seconds, *members = (min(times) for times in zip(*turns, strict=True))
    return {
        "mixture": f"`{mixture}`",
        "layers": mixture.length,
        "members_layers": sum(route.length for route in mixture.routes),
        "seconds": seconds,
        "members_seconds": sum(members),
        "ratio": seconds / sum(members),
        "target": MOST,
        "turns": turns,
    }


def measure_processor_seconds(run: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Processor seconds, which other work on the machine changes little, and the result."""
    start = time.process_time()
    result = run(*arguments)
    return time.process_time() - start, result


def write_answers(model: Any, prompts: Sequence[Tokens], tokens: int, fused: Any, route: RouteOrMixture) -> None:
    """Write as many tokens after every prompt."""
    generate_for_routes(model, [route], prompts, GenerationRequest((DecodingStage(frozenset(), tokens),)), fused)


def main() -> None:
    """Measure, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--task", default="counting")
    parser.add_argument("--prompts", type=int, default=145)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    frozen = load_model(arguments.model)
    task = load_task(arguments.task, data_dir=arguments.data_dir, seed=SEED)
    examples = make_splits(task, seed=SEED).train[: arguments.prompts]
    prompts = encode_prompts(frozen, task, examples, DecodingSettings("direct"))
    fused = get_fused_decoder(frozen)
    write = partial(write_answers, frozen.model, prompts, arguments.tokens, fused)
    measure = measure_processor_seconds if frozen.model.device.type == "cpu" else measure_seconds
    rows = [time_mixture(write, mixture, measure) for mixture in list_mixtures(frozen.layers)]
    for row in rows:
        row["decoder"] = "eager" if fused is None else "fused"
        print({name: row[name] for name in COLUMNS}, flush=True)
    if arguments.write:
        name = Path(arguments.model).name
        write_record(
            arguments.write,
            command=f"python -m benchmarks.mixture_decoding {name} --prompts {len(prompts)} --tokens"
            f" {arguments.tokens} --write docs/data/{arguments.write.name}",
            config={"model": name, "task": arguments.task, "prompts": len(prompts), "tokens": arguments.tokens},
            seed=SEED,
            columns=COLUMNS,
            results=rows,
            device=frozen.model.device.type,
        )
    sys.exit(not all(row["ratio"] <= MOST for row in rows))


if __name__ == "__main__":
    main()
