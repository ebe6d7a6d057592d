"""Load, freeze and identify a pretrained model, or describe one whose weights are not loaded in this process.

Torch is imported inside functions, so that checking settings does not wait for it.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from macro_routing.errors import ModelError
from macro_routing.models.built_in import DEFAULT_MODEL
from macro_routing.models.catalog import MessageCallback, fetch_model_folder, ignore_message
from macro_routing.models.chat import ChatFormat, read_chat_format
from macro_routing.models.identity import (
    compute_numerics_id,
    compute_weights_id,
    digest_loaded_weights,
    digest_model_files,
)
from macro_routing.models.load_options import LoadOptions
from macro_routing.models.support import (
    check_model_can_be_routed,
    check_weights_complete,
    choose_attention,
    get_text_config,
)
from macro_routing.models.unquantized_weights import warn_of_unquantized_weights


@dataclass(frozen=True, eq=False)
class FrozenModel:
    """A model in evaluation mode without gradients, with its tokenizer and two identities."""

    name: str
    """Name by which it was loaded."""
    model: Any
    tokenizer: Any
    weights_id: str
    """Identity of the weights, whatever the model is called."""
    numerics_id: str
    """Identity of weights, precision, device and libraries: scores are stored under it."""

    @property
    def layers(self) -> int:
        """Number of layers, which routes for this model must be written for."""
        from macro_routing.models.find_decoder import count_model_layers

        return count_model_layers(self.model)

    @cached_property
    def chat(self) -> ChatFormat:
        """Chat template, think block and end-of-turn tokens."""
        return read_chat_format(self.tokenizer, self.model.generation_config)

    def __repr__(self) -> str:
        """One line; the model itself prints a page."""
        architecture = get_text_config(self.model.config).model_type
        return (
            f"FrozenModel({self.name!r}, {architecture}, {self.layers} layers, {self.model.dtype}, {self.model.device})"
        )

    def tokenize_texts(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Tokenize many texts, without the offsets and masks that calling the tokenizer computes."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None or backend.truncation or backend.padding:
            token_ids: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=add_special_tokens)["input_ids"]
            return token_ids
        return [
            encoding.ids for encoding in backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        ]


def load_model(
    name: str = DEFAULT_MODEL, options: LoadOptions | None = None, report: MessageCallback = ignore_message
) -> FrozenModel:
    """Find, load and freeze a model named by built-in name, folder, GGUF file or hub id."""
    options = options or LoadOptions()
    folder = fetch_model_folder(name, revision=options.revision, report=report)
    config = read_model_config(folder, name, options)
    check_model_can_be_routed(config, allow_untested=options.allow_untested)
    warn_of_unquantized_weights(config, options.quantization and choose_dtype_name(options), report)
    with _without_progress_bars():
        model = _load_weights(folder, name, config, options)
    tokenizer = load_tokenizer(folder, name, options)
    return _make_frozen_model(name, model, tokenizer, digest_model_files(folder), options.quantization)


@contextlib.contextmanager
def _without_progress_bars() -> Iterator[None]:
    """A library prints nothing that was not asked for; ``report`` tells what takes long."""
    from transformers.utils import logging

    bars: Any = logging
    was_enabled = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            bars.enable_progress_bar()


def freeze_model(
    model: Any, tokenizer: Any = None, *, name: str = "a model in memory", allow_untested: bool = False
) -> FrozenModel:
    """Freeze a model that is already loaded; its weights are hashed in memory."""
    from macro_routing.models.find_decoder import check_has_no_adapter

    check_model_can_be_routed(model.config, allow_untested=allow_untested)
    check_has_no_adapter(model)
    return _make_frozen_model(name, model, tokenizer, digest_loaded_weights(model), None)


def _make_frozen_model(
    name: str, model: Any, tokenizer: Any, sources: dict[str, Any], quantization: str | None
) -> FrozenModel:
    model.eval()
    model.requires_grad_(requires_grad=False)
    weights = compute_weights_id(model.config, tokenizer, sources)
    return FrozenModel(name, model, tokenizer, weights, compute_numerics_id(weights, model, tokenizer, quantization))


def read_model_config(folder: Path, name: str, options: LoadOptions) -> Any:
    """Read the configuration in a model's folder."""
    from transformers import AutoConfig

    _reject_routed_checkpoint(folder, name)
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=options.trust_remote_code)
    except Exception as error:  # noqa: BLE001 a damaged file can fail anywhere in the libraries that read it
        raise ModelError(f"the configuration of {name} cannot be read: {_first_error_line(error)}") from None


def _reject_routed_checkpoint(folder: Path, name: str) -> None:
    """Reject a checkpoint that already applies a route (`macro export --format routed`); name its base model."""
    try:
        base = json.loads((folder / "config.json").read_text(encoding="utf-8"))["macro_base"]
        base_model = base.get("hub") or folder / str(base["folder"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    raise ModelError(f"{name} is a routed checkpoint already; use its base model instead, {base_model}")


def _load_weights(folder: Path, name: str, config: Any, options: LoadOptions) -> Any:
    from transformers import AutoModelForCausalLM

    device = _resolve_device(options)
    arguments: dict[str, Any] = {
        "config": config,
        "dtype": choose_dtype_name(options),
        "trust_remote_code": options.trust_remote_code,
        "use_safetensors": True,  # pickled weights run code
    }
    if (attention := choose_attention(config, options.attention)) is not None:
        arguments["attn_implementation"] = attention
    if options.quantization is not None:
        arguments["quantization_config"] = _make_quantization_config(options.quantization)
    if options.device_map is not None or options.quantization is not None:
        arguments["device_map"] = options.device_map or device
    try:
        loader: Any = AutoModelForCausalLM
        model, loaded = loader.from_pretrained(folder, output_loading_info=True, **arguments)
    except Exception as error:  # noqa: BLE001 a damaged file can fail anywhere in the libraries that read it
        raise ModelError(f"{name} cannot be loaded: {_first_error_line(error)}") from None
    check_weights_complete(name, loaded)
    return model if "device_map" in arguments else model.to(device)


def load_tokenizer(folder: Path, name: str, options: LoadOptions) -> Any:
    """Load the tokenizer of a model on disk, with a padding token."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=options.trust_remote_code)
    except Exception as error:  # noqa: BLE001 a damaged file can fail anywhere in the libraries that read it
        reason = _first_error_line(error).rstrip()
        if reason.endswith(":"):  # a list of what was tried follows
            reason = "its files (tokenizer.json and others) are not beside the weights, or damaged"
        raise ModelError(f"the tokenizer of {name} cannot be loaded: {reason}") from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _resolve_device(options: LoadOptions) -> str:
    import torch

    if options.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(
            f"device = {options.device}: no CUDA device is available here; see `macro doctor --environment`"
        )
    return options.device


def choose_dtype_name(options: LoadOptions) -> str:
    """The name of the dtype that ``options`` give on this machine."""
    device = _resolve_device(options)
    if options.dtype != "auto":
        return options.dtype
    return "bfloat16" if device.startswith("cuda") or options.quantization else "float32"


def _make_quantization_config(kind: str) -> Any:
    import importlib.util

    import torch
    import transformers

    if importlib.util.find_spec("bitsandbytes") is None:
        raise ModelError(f"quantization {kind} needs bitsandbytes: pip install '.[quant]' in the checkout")
    configuration: Any = transformers.BitsAndBytesConfig
    if kind == "8bit":
        return configuration(load_in_8bit=True)
    return configuration(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)


def _first_error_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# --- models whose weights stay on disk, for engines that load them ------------------------------------------------


@dataclass(frozen=True, eq=False)
class ModelMetadata:
    """What is known of a model without loading its weights."""

    name: str
    folder: Path
    config: Any
    weights_id: str
    numerics_id: None = None
    """The engine that will run it decides the numerics."""

    @property
    def layers(self) -> int:
        """Number of layers, which routes for this model must be written for."""
        return int(get_text_config(self.config).num_hidden_layers)


def read_model_metadata(name: str, options: LoadOptions, report: MessageCallback = ignore_message) -> ModelMetadata:
    """Read the metadata of a model by built-in name, folder, GGUF file or hub id; loading gives the same identity."""
    folder = fetch_model_folder(name, revision=options.revision, report=report)
    config = read_model_config(folder, name, options)
    tokenizer = load_tokenizer(folder, name, options)
    return ModelMetadata(name, folder, config, compute_weights_id(config, tokenizer, digest_model_files(folder)))


# --- models that only workers have loaded -------------------------------------------------------------------------
# The process that drives workers needs the tokenizer, the shape and the identity of the model. The weights would take
# memory that a worker can use.


@dataclass(frozen=True)
class RemoteModelInfo:
    """What a worker reports about the model it has loaded."""

    weights_id: str
    numerics_id: str
    device: str
    """Device type: cpu or cuda."""
    dtype: str
    fused_unsupported_reason: str | None
    """Why it cannot use the fused decoder; None where it can."""


@dataclass(frozen=True, eq=False)
class ModelPlaceholder:
    """Stands in for a loaded model; running it raises an error that explains why."""

    config: Any
    generation_config: Any
    device: Any
    dtype: Any
    fused_unsupported_reason: str | None

    def __getattr__(self, name: str) -> Any:
        """Raise: every other attribute needs the weights."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise ModelError(
            "the model is loaded by the workers alone, but this needs it in the search's own process;"
            " run it without workers (--workers 0)"
        )


@dataclass(frozen=True, eq=False)
class RemoteModel(FrozenModel):
    """A frozen model whose weights only workers have."""

    @property
    def layers(self) -> int:
        """Number of layers, by the configuration."""
        return int(get_text_config(self.model.config).num_hidden_layers)


def make_remote_model(
    name: str, options: LoadOptions, info: RemoteModelInfo, report: MessageCallback = ignore_message
) -> RemoteModel:
    """Make the stand-in for the model ``name`` that workers have loaded."""
    folder = fetch_model_folder(name, revision=options.revision, report=report)
    config = read_model_config(folder, name, options)
    warn_of_unquantized_weights(config, options.quantization and choose_dtype_name(options), report)
    return _make_stand_in(name, folder, config, load_tokenizer(folder, name, options), info)


def make_stand_in_without_weights(
    name: str, options: LoadOptions, report: MessageCallback = ignore_message
) -> RemoteModel:
    """Make the stand-in for the model ``name`` as loading it in this process would make it.

    Where that comes out otherwise, the identity of the numerics is one that no score was stored under. Which decoder a
    GPU would use is not known.
    """
    import torch
    from transformers import AutoModelForCausalLM

    folder = fetch_model_folder(name, revision=options.revision, report=report)
    config = read_model_config(folder, name, options)
    check_model_can_be_routed(config, allow_untested=options.allow_untested)
    tokenizer = load_tokenizer(folder, name, options)
    weights = compute_weights_id(config, tokenizer, digest_model_files(folder))
    dtype, device = choose_dtype_name(options), torch.device(_resolve_device(options))
    maker: Any = AutoModelForCausalLM
    with torch.device("meta"):
        skeleton = maker.from_config(
            config,
            attn_implementation=choose_attention(config, options.attention),
            trust_remote_code=options.trust_remote_code,
        )
    stand_in = ModelPlaceholder(skeleton.config, None, device, getattr(torch, dtype), "no weights are loaded")
    numerics = compute_numerics_id(weights, stand_in, tokenizer, options.quantization)
    info = RemoteModelInfo(weights, numerics, device.type, dtype, stand_in.fused_unsupported_reason)
    return _make_stand_in(name, folder, config, tokenizer, info)


def _make_stand_in(name: str, folder: Path, config: Any, tokenizer: Any, info: RemoteModelInfo) -> RemoteModel:
    import torch
    from transformers import GenerationConfig

    try:
        generation = GenerationConfig.from_pretrained(folder)
    except OSError:  # without such a file the configuration holds the values
        generation = GenerationConfig.from_model_config(config)
    model = ModelPlaceholder(
        config, generation, torch.device(info.device), getattr(torch, info.dtype), info.fused_unsupported_reason
    )
    return RemoteModel(name, model, tokenizer, info.weights_id, info.numerics_id)
