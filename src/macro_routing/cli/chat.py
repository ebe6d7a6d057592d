"""``macro chat``: talk to a model that runs a route."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from macro_routing import models
from macro_routing.cli.console import check_and_quiet_model_libraries, print_progress_message
from macro_routing.cli.route_argument import check_route_without_model, read_route_or_mixture
from macro_routing.cli.run_options import NO_PRESET, FlagTables, make_load_options_from_flags, with_run_options
from macro_routing.models.built_in import DEFAULT_MODEL
from macro_routing.models.chat import encode_messages
from macro_routing.routes.mixture import require_question

HELP = "An empty line or Ctrl-D ends the conversation; /reset forgets it."


@with_run_options("dtype", "device", "quantization", "revision", **NO_PRESET)
def chat(
    flags: FlagTables,
    model: Annotated[str, typer.Argument(help="A built-in name, a folder, a .gguf file or a hub id.")] = DEFAULT_MODEL,
    route: Annotated[
        str, typer.Option(help="The route, in any notation, or a route file; 'L0 RJ' is the standard pass.")
    ] = "L0 RJ",
    system: Annotated[str, typer.Option(help="System text.")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens of an answer.")] = 512,
    temperature: Annotated[float, typer.Option(min=0, help="0 always takes the most probable token.")] = 0.0,
) -> None:
    """Talk to a model that runs its layers in another order; answers appear as they are written.

    Example: `macro chat smollm2-135m --route 'L0-L17 L17 RJ'`

    Example: `echo 'Hello' | macro chat smollm2-135m`
    """
    check_and_quiet_model_libraries()
    check_route_without_model(route, model, require_question)  # what is wrong is told before the model is loaded
    frozen = models.load_model(model, make_load_options_from_flags(flags), print_progress_message)
    parsed = read_route_or_mixture(route, frozen)
    routed = frozen.model if parsed.is_standard else models.apply_route(frozen, parsed)
    if sys.stdin.isatty():
        print_progress_message(f"{frozen.name} on {parsed}. {HELP}")
    beginning = [{"role": "system", "content": system}] if system else []
    messages: list[dict[str, str]] = list(beginning)
    while (line := _read_user_line()) is not None:
        if line == "/reset":
            messages = list(beginning)
            continue
        messages.append({"role": "user", "content": line})
        messages.append(
            {
                "role": "assistant",
                "content": _stream_answer_to_terminal(frozen, routed, messages, max_tokens, temperature),
            }
        )


def _read_user_line() -> str | None:
    """What the user types; None at the end."""
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return None
    return line.strip() or None


def _stream_answer_to_terminal(
    frozen: Any, model: Any, messages: Sequence[dict[str, str]], max_tokens: int, temperature: float
) -> str:
    """Stream an answer to standard output; Ctrl-C ends the answer, not the conversation."""
    import torch
    from transformers import TextStreamer

    ids = torch.tensor([encode_messages(frozen.tokenizer, messages)], device=model.device)
    sampling = {"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}
    parts: list[str] = []

    class Streamer(TextStreamer):
        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            parts.append(text)
            print(text, end="\n" if stream_end else "", flush=True)

    streamer = Streamer(frozen.tokenizer, skip_prompt=True, skip_special_tokens=True)
    try:
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            eos_token_id=list(frozen.chat.end_token_ids),
            pad_token_id=frozen.tokenizer.pad_token_id,
            streamer=streamer,
            **sampling,
        )
    except KeyboardInterrupt:
        print(" …", flush=True)
    return "".join(parts)
