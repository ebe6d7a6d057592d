"""How a model is loaded: settings that can be read and checked without a deep-learning library."""

import re
from dataclasses import dataclass

from macro_routing.errors import ModelError
from macro_routing.settings import CheckedSettings, check_choice, check_string, option

DTYPES = ("auto", "float32", "bfloat16", "float16")
QUANTIZATIONS = ("4bit", "8bit", NO_QUANTIZATION := "none")
ATTENTIONS = ("sdpa", "eager", "flash_attention_2")
_PANEL = "Model"


@dataclass(frozen=True)
class LoadOptions(CheckedSettings):
    """How a model is loaded."""

    dtype: str = option("auto", "auto, float32, bfloat16 or float16; auto is bfloat16 on CUDA, float32 on CPU.", _PANEL)
    device: str = option("auto", "auto, cpu, cuda or cuda:N; auto is CUDA where there is one.", _PANEL)
    device_map: str | None = option(
        None, "Spread a large model over several devices: auto, balanced, sequential.", _PANEL
    )
    quantization: str | None = option(
        None,
        "4bit (NF4) or 8bit, through bitsandbytes (extra [quant]), or none.",
        _PANEL,
        shown_default="none, or the preset's",
    )
    attention: str | None = option(
        None, "sdpa, eager or flash_attention_2; transformers chooses where none is given.", _PANEL
    )
    revision: str | None = option(None, "Commit, tag or branch of a hub model.", _PANEL)
    trust_remote_code: bool = option(False, "Allow code that comes with the model to run.", _PANEL)
    allow_untested: bool = option(False, "Try an architecture that the tests do not cover.", _PANEL)

    def __post_init__(self) -> None:
        """Reject impossible combinations."""
        check_choice("dtype", self.dtype, DTYPES)
        if self.quantization is not None:
            check_choice("quantization", self.quantization, QUANTIZATIONS)
        if self.quantization == NO_QUANTIZATION:
            object.__setattr__(self, "quantization", None)
        if self.attention is not None:
            check_choice("attention", self.attention, ATTENTIONS)
        super().__post_init__()  # a string such as "no" would count as true
        for name in ("device", "device_map", "revision"):
            check_string(name, getattr(self, name))
        if self.device.startswith("mps"):
            raise ModelError("Apple GPUs (mps) are not supported: routes were never tested there; use the device cpu")
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", self.device):
            raise ModelError(f"device = {self.device!r} is not allowed: it must be auto, cpu, cuda or cuda:N")
        if self.device_map is not None and self.device != "auto":
            raise ModelError(f"device = {self.device} and device_map = {self.device_map} exclude each other")
