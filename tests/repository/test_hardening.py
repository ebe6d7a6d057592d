"""Nothing that runs foreign code, and no secrets in what is written."""

import ast
import os
from pathlib import Path

import pytest

from macro_routing.errors import redact_secrets
from macro_routing.runs import Listener, RunFolder, run_search
from tests.runs.small import small_frozen, small_task
from tests.runs.test_run import CONFIG

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for part in ("src", "benchmarks", "experiments", "tools", "examples")
    for path in sorted((ROOT / part).rglob("*.py"))
]
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
BUILT_IN = {"eval", "exec", "compile", "__import__"}
METHODS = {("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load"), ("os", "system"), ("os", "popen")}
NEEDED = {("np", "load"): ("allow_pickle", False), ("torch", "load"): ("weights_only", True)}


def offences(tree):
    """What a module does that it must not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            yield from (f"imports {name}" for name in names if name.split(".")[0] in MODULES)
        if not isinstance(node, ast.Call):
            continue
        given = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
        if given.get("shell") or given.get("allow_pickle"):
            yield f"passes {given}"
        if isinstance(node.func, ast.Name) and node.func.id in BUILT_IN:
            yield f"calls {node.func.id}"
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            called = (node.func.value.id, node.func.attr)
            if called in METHODS:
                yield f"calls {'.'.join(called)}"
            name, value = NEEDED.get(called, (None, None))
            if name is not None and given.get(name) is not value:
                yield f"calls {'.'.join(called)} without {name} = {value}"


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("import pickle", 1),
        ("from dill import loads", 1),
        ("eval('1')", 1),
        ("model.eval()", 0),
        ("yaml.load(text)", 1),
        ("yaml.safe_load(text)", 0),
        ("np.load(file)", 1),
        ("np.load(file, allow_pickle=False)", 0),
        ("torch.load(file)", 1),
        ("subprocess.run('x', shell=True)", 1),
    ],
)
def test_the_search_for_offences_finds_them(code, count):
    assert len(list(offences(ast.parse(code)))) == count


def test_nothing_is_unpickled_evaluated_or_loaded_unsafely():
    assert len(SOURCES) > 200
    found = {path.name: list(offences(ast.parse(path.read_text(encoding="utf-8")))) for path in SOURCES}
    assert {name: what for name, what in found.items() if what} == {}


SECRETS = {"HF_TOKEN": "hf_AbCdEfGhIjKlMn", "WANDB_API_KEY": "0123456789abcdef", "DB_PASSWORD": "correct horse"}


def test_secrets_of_the_environment_are_struck_out(monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SHORT_TOKEN", "abc")  # would strike out half of every text
    said = redact_secrets(f"could not log in with {SECRETS['HF_TOKEN']} or '{SECRETS['DB_PASSWORD']}', abc")
    assert said == "could not log in with [HF_TOKEN] or '[DB_PASSWORD]', abc"


@pytest.mark.parametrize(
    "name", ["AZURE_STORAGE_KEY", "DEPLOY_PRIVATE_KEY", "OPENAI_KEY", "SSH_PASSPHRASE", "SIGNING_KEYS"]
)
def test_names_of_secrets_are_many(monkeypatch, name):
    monkeypatch.setenv(name, "0123456789abcdef")
    monkeypatch.setenv("OTHER_API_KEY", "0123456789")  # the beginning of the other
    monkeypatch.setenv("KEYBOARD_LAYOUT", "somewhere else")
    assert redact_secrets("0123456789abcdef, somewhere else") == f"[{name}], somewhere else"


def test_no_secret_is_written_into_a_runs_folder(tmp_path, monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)

    class Talker(Listener):
        def on_round(self, _report):
            RunFolder.open(tmp_path / "run").log(f"a library said {SECRETS['HF_TOKEN']}")

    run_search(
        CONFIG,
        tmp_path / "run",
        frozen=small_frozen(),
        task=small_task(),
        store=tmp_path / "s.sqlite",
        listener=Talker(),
    )
    RunFolder.open(tmp_path / "run").write_json("note.json", {"why": SECRETS["WANDB_API_KEY"]})
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(written) > 8
    for path, content in written.items():
        assert not any(value.encode() in content for value in SECRETS.values()), path
    assert b"[HF_TOKEN]" in (tmp_path / "run" / "log.txt").read_bytes()
    assert os.environ["HF_TOKEN"] == SECRETS["HF_TOKEN"]
