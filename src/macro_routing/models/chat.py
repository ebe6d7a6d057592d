"""The chat format of a model: chat template, think block, end-of-turn tokens."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from macro_routing.errors import ModelError

_PLACEHOLDER = "MACROMARK"


@dataclass(frozen=True)
class ThinkBlock:
    """The markers around a model's reasoning."""

    opening: str = "<think>"
    """Begins the reasoning."""
    closing: str = "</think>"
    """Ends it."""


@dataclass(frozen=True)
class ChatFormat:
    """What a tokenizer's chat template defines."""

    template: str | None
    """The Jinja template; None where the tokenizer has none."""
    think: ThinkBlock | None
    """None for models that do not mark their reasoning."""
    end_token_ids: tuple[int, ...]
    """Tokens that end an answer, the template's own end of turn among them."""

    @property
    def template_id(self) -> str:
        """A digest of the template; part of the prompts' version."""
        return hashlib.sha256((self.template or "").encode()).hexdigest()[:16]


def read_chat_format(tokenizer: Any, generation_config: Any = None) -> ChatFormat:
    """Read the chat format of a tokenizer; without a template it is empty."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):  # several named templates; transformers uses this one
        template = template.get("default")
    has_think = template is not None and "<think>" in template
    end_token_ids = [
        *_as_id_list(getattr(tokenizer, "eos_token_id", None)),
        *_as_id_list(getattr(generation_config, "eos_token_id", None)),
        *(_find_end_of_turn_token(tokenizer) if template is not None else ()),
    ]
    return ChatFormat(template, ThinkBlock() if has_think else None, tuple(dict.fromkeys(end_token_ids)))


def _as_id_list(value: int | Sequence[int] | None) -> list[int]:
    return [] if value is None else [value] if isinstance(value, int) else list(value)


def _find_end_of_turn_token(tokenizer: Any) -> list[int]:
    """Find the special token that the template puts after an assistant's answer.

    It can differ from the tokenizer's ``eos_token``, as in SmolLM2's GGUF. A model that is not stopped at its end of
    turn continues with a turn of the user.
    """
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": _PLACEHOLDER}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception:  # noqa: BLE001 a template is a program of its own and may raise anything
        return []
    _, separator, tail = text.rpartition(_PLACEHOLDER)
    if not separator:
        return []
    added = set(tokenizer.added_tokens_decoder)
    return [token for token in tokenizer.encode(tail, add_special_tokens=False) if token in added][:1]


def render_chat_prompt(tokenizer: Any, messages: Sequence[Mapping[str, str]], *, thinking: bool | None = None) -> str:
    """Render ``messages`` as a prompt, ready for the assistant's answer.

    ``thinking`` is passed to templates that can switch reasoning on and off; others ignore it.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        raise ModelError("this model has no chat template; give it plain text, or use an instruction-tuned model")
    options = {} if thinking is None else {"enable_thinking": thinking}
    return str(
        tokenizer.apply_chat_template(
            [dict(m) for m in messages], tokenize=False, add_generation_prompt=True, **options
        )
    )


def encode_messages(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], *, thinking: bool | None = None
) -> tuple[int, ...]:
    """Tokenize messages with the chat template, or as plain text for models without one."""
    if getattr(tokenizer, "chat_template", None) is not None:
        return tuple(
            tokenizer.encode(render_chat_prompt(tokenizer, messages, thinking=thinking), add_special_tokens=False)
        )
    turns = [
        f"{message['content']}\nAnswer:" if message["role"] == "user" else message["content"] for message in messages
    ]
    joined = "".join(turn if turn.endswith("Answer:") else f" {turn}\n\n" for turn in turns).strip()
    return tuple(tokenizer.encode(joined))
