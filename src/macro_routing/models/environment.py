"""Describe this machine and the installation, for bug reports."""

import functools
import importlib.metadata
import os
import platform
import shutil
import sys
from dataclasses import dataclass

from macro_routing.models.built_in import BUILT_IN_MODELS
from macro_routing.models.cache_folder import get_macro_cache_folder
from macro_routing.models.catalog import get_cache_folder_of_converted_gguf
from macro_routing.version import __version__

EXTRA_PACKAGES = {
    "models": ("torch", "transformers", "safetensors", "gguf", "accelerate"),
    "quant": ("bitsandbytes",),
    "eval": ("datasets", "math-verify"),
    "plot": ("vl_convert",),
    "peers": ("scikit-learn",),
    "serve": ("fastapi", "uvicorn"),
}
"""Packages of each extra of the distribution."""


@dataclass(frozen=True)
class EnvironmentFact:
    """One line of the report."""

    topic: str
    finding: str
    remedy: str = ""
    """What to do if something is missing."""


def describe_environment() -> list[EnvironmentFact]:
    """Versions, devices, extras, memory and disk; works with nothing but the base installed."""
    return [
        EnvironmentFact("macro", __version__),
        EnvironmentFact("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        EnvironmentFact("processor", f"{os.cpu_count()} cores, {_describe_memory()}"),
        *_describe_installed_extras(),
        *_describe_devices(),
        *_describe_cache_disk_space(),
    ]


@functools.cache
def _find_installed_version(package: str) -> str | None:
    """Read the metadata of a package once: every run's manifest names all versions."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _describe_installed_extras() -> list[EnvironmentFact]:
    base = ", ".join(f"{name} {_find_installed_version(name)}" for name in ("numpy", "typer", "rich", "PyYAML"))
    facts = [EnvironmentFact("base", base)]
    for extra, packages in EXTRA_PACKAGES.items():
        versions = {name: _find_installed_version(name) for name in packages}
        missing = [name for name, version in versions.items() if version is None]
        installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
        parts = [installed, f"missing: {', '.join(missing)}" if missing else ""]
        remedy = f"pip install '.[{extra}]' in the checkout" if missing else ""
        facts.append(EnvironmentFact(f"extra [{extra}]", "; ".join(filter(None, parts)), remedy))
    return facts


def _describe_devices() -> list[EnvironmentFact]:
    if _find_installed_version("torch") is None:
        return [EnvironmentFact("devices", "unknown without torch", "pip install '.[models]' in the checkout")]
    import torch

    facts = [EnvironmentFact("cpu", f"works, float32, {torch.get_num_threads()} threads")]
    if not torch.cuda.is_available():
        built = (
            f"torch {torch.__version__} was built for CUDA {torch.version.cuda}"
            if torch.version.cuda
            else "CPU build of torch"
        )
        facts.append(
            EnvironmentFact("cuda", f"none ({built})", "needs an NVIDIA GPU, its driver and a CUDA build of torch")
        )
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        bf16 = "bfloat16" if torch.cuda.is_bf16_supported() else "no bfloat16"
        memory = properties.total_memory / 2**30
        facts.append(
            EnvironmentFact(f"cuda:{number}", f"{properties.name}, {memory:.0f} GiB, CUDA {torch.version.cuda}, {bf16}")
        )
    if torch.backends.mps.is_available():
        facts.append(EnvironmentFact("mps", "an Apple GPU, which is not supported", "use --device cpu"))
    return facts


def _describe_cache_disk_space() -> list[EnvironmentFact]:
    folder = get_macro_cache_folder()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free / 2**30
    cached = [
        name for name, model in BUILT_IN_MODELS.items() if get_cache_folder_of_converted_gguf(model.digest).is_dir()
    ]
    remedy = "" if free > 5 else "set MACRO_CACHE_DIR to a disk with more space"
    return [
        EnvironmentFact("cache folder", f"{folder}, {free:.0f} GiB free", remedy),
        EnvironmentFact(
            "built-in models",
            f"cached: {', '.join(cached) or 'none'}",
            "" if cached else "macro models --fetch smollm2-135m",
        ),
    ]


def _describe_memory() -> str:
    if sys.platform == "win32" or "SC_PHYS_PAGES" not in os.sysconf_names:
        return "memory unknown"
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES") / 2**30
    free = page * os.sysconf("SC_AVPHYS_PAGES") / 2**30 if "SC_AVPHYS_PAGES" in os.sysconf_names else None
    return f"{total:.0f} GiB memory" + ("" if free is None else f", {free:.0f} GiB free")
