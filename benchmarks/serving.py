"""Every place a route can run in: whether it writes what the routed model writes, and the memory it takes.

    python -m benchmarks.serving --vllm-python PYTHON [--model smollm2-135m] [--write docs/data/serving.json]

PYTHON is the interpreter of vLLM's environment (`make vllm-env`). Each cell is a process of its own: it is started,
asked one question (servers over HTTP), looked at, and ended. Memory is what is resident in the process and its
children, so the libraries are in it; what a route costs is the difference to the standard pass in the same program.
"""

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.process_memory import PeakMemoryMonitor
from benchmarks.record import ROOT, write_record
from macro_routing.deploy.export_common import open_exportable_model
from macro_routing.deploy.gguf_export import write_gguf
from macro_routing.deploy.hf_export import write_hf_checkpoint
from macro_routing.deploy.routed_checkpoint import write_routed_checkpoint
from macro_routing.errors import ExportError
from macro_routing.models import FrozenModel, apply_route, load_model
from macro_routing.models.chat import encode_messages
from macro_routing.models.frozen import ModelMetadata
from macro_routing.routes import Route, parse_route

QUESTION = "What is the capital of France?"
NEW_TOKENS = 24
ROUTES = {"standard": "L0 RJ", "ten repeats": "L0-L17 L8 RJ", "an add": "L0-L17 L17 L18(+0.25h-2) RJ"}
WRITERS: dict[str, Callable[..., None]] = {
    "routed": write_routed_checkpoint,
    "hf": write_hf_checkpoint,
    "gguf": write_gguf,
}
TARGETS = {
    "routed": "transformers, `--format routed`",
    "hf": "transformers, `--format hf`",
    "gguf": "llama.cpp, `--format gguf`",
    "transformers": "transformers' server, `macro serve`",
    "vllm": "vLLM's server on CPU, `macro serve`",
}
COLUMNS = {
    "target": "where",
    "route": "route",
    "works": "greedy text is the routed model's",
    "memory_mb": "memory, MB",
    "more_mb": "more than its standard pass, MB",
    "copied_mb": "repeated layers would take, MB",
    "peak_mb": "peak at start-up, MB",
}
_VLLM = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
_SECONDS = 400
"""Most time to start or to answer."""


@dataclass(frozen=True)
class GenerationRequest:
    """The one question, as text and as tokens."""

    model: str
    ids: list[int]
    ends: list[int]

    def request(self) -> str:
        """What the workers are told."""
        return json.dumps({"ids": self.ids, "ends": self.ends, "new": NEW_TOKENS})


# --- processes ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def start_process(command: list[str], **settings: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is ended afterwards."""
    environment = {**os.environ, **settings}
    process = subprocess.Popen(  # noqa: S603 our own programs
        command, env=environment, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measure_exported_model(
    kind: str, base: ModelMetadata, route: Route, asked: GenerationRequest
) -> tuple[str, float, float]:
    """What an exported model writes, its memory then, and its peak."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / ("model.gguf" if kind == "gguf" else "model")
        WRITERS[kind](base, route, None, out)
        command = [sys.executable, "-m", "benchmarks.serving_worker", kind, str(out), asked.request()]
        with start_process(command) as process, PeakMemoryMonitor(process.pid) as watch:
            assert process.stdout is not None
            text = next(json.loads(line) for line in process.stdout if line.startswith('"'))
            return text, watch.sample(), watch.peak


def measure_server(kind: str, python: Path, route: Route, asked: GenerationRequest) -> tuple[str, float, float]:
    """The same of a server that ``macro serve`` starts, asked over HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(python), "-m", "macro_routing.cli.main", "serve", str(route), "--model", asked.model]
    command += ["--engine", kind, "--port", str(port)]
    settings: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        if kind == "vllm":
            command += ["--", "--enforce-eager", "--max-model-len", "512"]
            path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # vLLM finds its programs there
            settings = {**_VLLM, "PATH": path, "VLLM_CACHE_ROOT": scratch}
        with start_process(command, **settings) as process, PeakMemoryMonitor(process.pid) as watch:
            _wait_until_served(process, f"http://127.0.0.1:{port}/health")
            text = _request_completion(f"http://127.0.0.1:{port}/v1/chat/completions", asked.model)
            return text, watch.sample(), watch.peak


def _wait_until_served(process: subprocess.Popen[str], address: str) -> None:
    for _ in range(2 * _SECONDS):
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(address).close()  # noqa: S310 an address made above
            return
        time.sleep(0.5)
    sys.exit(f"nothing answers at {address}")


def _request_completion(address: str, model: str) -> str:
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": NEW_TOKENS,
    }
    request = urllib.request.Request(  # noqa: S310 an address made above
        address, json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
        return str(json.load(answer)["choices"][0]["message"]["content"])


# --- the table ----------------------------------------------------------------------------------------------------


def generate_expected_text(frozen: FrozenModel, route: Route, asked: GenerationRequest) -> str:
    """What the routed model writes in transformers."""
    ids = torch.tensor([asked.ids])
    written: Any = apply_route(frozen, route).generate(
        ids, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=asked.ends, pad_token_id=asked.ends[0]
    )
    return str(frozen.tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True))


def repeated_layers_mb(frozen: FrozenModel, route: Route) -> float:
    """What every step beyond a layer's first would take if it had weights of its own."""
    layers: Any = frozen.model.get_decoder().layers
    sizes = [sum(value.numel() * value.element_size() for value in layer.parameters()) for layer in layers]
    steps = [step.layer for step in route.steps]
    extra: int = sum(sizes[layer] for layer in steps) - sum(sizes[layer] for layer in set(steps))
    return extra / 1e6


def measure_all_targets(
    frozen: FrozenModel, base: ModelMetadata, asked: GenerationRequest, vllm_python: Path | None
) -> list[dict[str, Any]]:
    """All targets, each with all routes."""
    results: list[dict[str, Any]] = []
    for kind, target in TARGETS.items():
        if kind == "vllm" and vllm_python is None:
            continue
        python = vllm_python if kind == "vllm" and vllm_python else Path(sys.executable)
        rows = [_make_row(frozen, base, asked, kind, python, name) for name in ROUTES]
        for row in rows:
            more = row["memory_mb"] - rows[0]["memory_mb"] if "memory_mb" in row else None
            results.append({"target": target, **row, "more_mb": more})
            print(results[-1], flush=True)
    return results


def _make_row(  # noqa: PLR0913 all it takes to run one cell
    frozen: FrozenModel, base: ModelMetadata, asked: GenerationRequest, kind: str, python: Path, name: str
) -> dict[str, Any]:
    route = parse_route(ROUTES[name], frozen.layers)
    row = {"route": name, "copied_mb": repeated_layers_mb(frozen, route)}
    try:
        run = (
            measure_exported_model(kind, base, route, asked)
            if kind in WRITERS
            else measure_server(kind, python, route, asked)
        )
    except ExportError as error:
        return {**row, "works": "rejected", "refusal": str(error)}
    text, memory, peak = run
    works = text == generate_expected_text(frozen, route, asked)
    return {**row, "works": works, "memory_mb": memory, "peak_mb": peak, "text": text}


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vllm-python", type=Path, help="the interpreter of vLLM's environment; without it no vLLM")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    frozen, base = load_model(arguments.model), open_exportable_model(arguments.model)
    ids = encode_messages(frozen.tokenizer, [{"role": "user", "content": QUESTION}])
    asked = GenerationRequest(arguments.model, list(ids), list(frozen.chat.end_token_ids))
    results = measure_all_targets(frozen, base, asked, arguments.vllm_python)
    if arguments.write is not None:
        config = {"model": arguments.model, "weights_id": base.weights_id, "routes": ROUTES, "dtype": "float32"}
        write_record(
            arguments.write,
            command=f"python -m benchmarks.serving --vllm-python PYTHON --model {arguments.model}"
            f" --write docs/data/{arguments.write.name}",
            config={**config, "vllm": _VLLM, "question": QUESTION},
            seed=0,
            columns=COLUMNS,
            results=results,
        )


if __name__ == "__main__":
    main()
