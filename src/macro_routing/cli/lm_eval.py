"""``macro lm-eval``: lm-evaluation-harness's own command line, which then knows the model ``macro``."""

import importlib.util
import sys
from typing import Annotated

import typer

from macro_routing.errors import ModelError

# Every argument is the harness's own, --help among them.
CONTEXT_SETTINGS = {"ignore_unknown_options": True, "help_option_names": []}


def lm_eval(
    context: typer.Context,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENTS", help="What lm-evaluation-harness's own command takes.", show_default=False),
    ] = None,
) -> None:
    """Run lm-evaluation-harness with routed models: `--model macro`, and a `route` among its model arguments.

    The route may be any notation without commas, a route file or a run's folder, and is recorded in the results.
    It needs the extra `[lm-eval]`.

    Example: `macro lm-eval run --model_args pretrained=smollm2-135m,route=route.json --tasks arc_easy --model macro`
    """
    if importlib.util.find_spec("lm_eval") is None:
        if arguments and arguments[0] in {"-h", "--help"}:
            print(context.get_help())
            return
        raise ModelError(
            "lm-evaluation-harness is not installed; in an environment of its own: pip install '.[lm-eval]' in the"
            " checkout"
        )
    from lm_eval.__main__ import cli_evaluate

    from macro_routing.deploy.lm_eval_harness import register_harness

    register_harness()
    sys.argv = ["lm-eval", *(arguments or [])]  # the harness reads its arguments there
    cli_evaluate()
