import json
import re

import pytest
import typer

from macro_routing.cli import export as command
from macro_routing.deploy import export_common
from macro_routing.errors import MacroError
from tests.cli.runner import ENVIRONMENT, run, run_script
from tests.deploy.bases import ADDS, PLAIN, route_file, tiny_base


def export(route, to, out, model=None, *, copy_weights=False):
    """In this process."""
    command.export(route=route, to=to, out=out, model=model, copy_weights=copy_weights)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_base(tmp_path_factory.mktemp("export") / "base", "llama")


@pytest.fixture
def run_folder(base, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "route.json").write_text(route_file(base, PLAIN).to_json())
    return tmp_path / "run"


def test_a_run_is_exported_with_its_evidence(run_folder, tmp_path):
    done = run("export", run_folder, "--format", "hf", "--out", tmp_path / "out")
    assert done.stdout.strip() == str(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["num_hidden_layers"] == PLAIN.length
    assert "Task: category" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(("to", "size"), [("routed", ""), ("mergekit", r" has about \d+ MB")])
def test_a_route_of_many_times_the_layers_is_told(base, tmp_path, capsys, to, size):
    route = " ".join(["L0-L5"] * 100)
    export(route, to, tmp_path / "out", base.name)
    told = capsys.readouterr().err
    assert "warning: the route applies 600 layers, 100 times the model's" in told
    assert bool(size) == ("a checkpoint with all of them" in told)
    if size:
        export(route, "hf", tmp_path / "hf", base.name)
        written = sum(path.stat().st_size for path in (tmp_path / "hf").glob("*.safetensors"))
        (megabytes,) = re.findall(r"has about (\d+) MB", told)
        assert int(megabytes) == pytest.approx(written / 1e6, rel=0.1)
    capsys.readouterr()
    export(str(PLAIN), to, tmp_path / "usual", base.name)
    assert "warning" not in capsys.readouterr().err


def _evidence(base):
    return route_file(base, PLAIN).to_json()


def _written(path, text):
    path.write_text(text)
    return str(path)


def test_mistakes_leave_nothing(base, run_folder, tmp_path):
    (tmp_path / "other.json").write_text(route_file(base, PLAIN, weights_id="0").to_json())
    (tmp_path / "taken").mkdir()
    out = tmp_path / "out"
    for route, target, model, message in (
        (str(PLAIN), "hf", None, "name one with --model"),
        (str(ADDS), "hf", base.name, r"step 5 \(L2\(\+h-2\)\)"),
        (str(tmp_path / "other.json"), "routed", None, "belongs to"),
        ("L0-L9", "routed", base.name, "layer 6"),
        (str(tmp_path / "taken"), "routed", None, "no finished run"),
        ("-", "routed", base.name, "pipe"),
        ("", "routed", base.name, "empty string"),
        (_written(tmp_path / "empty.json", " \n"), "routed", base.name, r"empty\.json is empty"),
        (
            _written(tmp_path / "half.json", _evidence(base)[:200]),
            "routed",
            None,
            r"half\.json: .*damaged.*sound one",
        ),
        (_written(tmp_path / "start.json", '{"for'), "routed", None, r"start\.json is not a route file"),
        ("/dev/null", "routed", base.name, "is not a regular file"),
    ):
        with pytest.raises(MacroError, match=message):
            export(route, target, out, model)
        assert not out.exists()
    with pytest.raises(MacroError, match="exists already"):
        export(str(run_folder), "routed", tmp_path / "taken")


def test_what_needs_no_model_is_told_before_it_is_loaded(base, tmp_path, monkeypatch):
    def load(*_, **__):
        pytest.fail("the model was loaded")

    monkeypatch.setattr(export_common, "open_exportable_model", load)
    for route, target, out, message in (
        ("2 [L0 RJ] - [L0 L2 RJ]", "hf", "out", "takes a single route; use --format routed"),
        ("2 [L0 RJ] - [L0 RJ | no question]", "routed", "out", "only compares choices by likelihood"),
        ("L0 RJ", "hf", ".", "exists already"),
    ):
        with pytest.raises(MacroError, match=message):
            export(route, target, tmp_path / out, base.name)


def test_a_mistake_is_one_line(tmp_path):
    done = run("export", str(PLAIN), "--format", "hf", "--out", tmp_path / "out", status=2)
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_missing_extra_is_named(run_folder, tmp_path):
    code = f"""
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "transformers" else found(name, *rest)
sys.argv = ["macro", "export", {str(run_folder)!r}, "--format", "hf", "--out", {str(tmp_path / "out")!r}]
from macro_routing.cli.main import main
main()
"""
    done = run(code=code, status=2, environment=ENVIRONMENT)
    assert "pip install '.[models]'" in done.stderr


def test_a_file_with_a_byte_order_mark_is_read(base, tmp_path):
    path = _written(tmp_path / "route.json", "\ufeff" + _evidence(base))
    export(path, "mergekit", tmp_path / "out.yml")
    assert (tmp_path / "out.yml").is_file()


def test_what_does_nothing_is_rejected(base, tmp_path):
    with pytest.raises(MacroError, match="--copy-weights belongs to --format routed"):
        export(str(PLAIN), "hf", tmp_path / "out", base.name, copy_weights=True)


@pytest.mark.parametrize("target", ["hf", "routed", "gguf", "mergekit"])
def test_models_without_sound_weights_are_rejected_by_every_target(target, tmp_path):
    folder = tiny_base(tmp_path / "model", "llama").folder
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    with pytest.raises(MacroError, match=r"model\.safetensors cannot be read"):
        export(str(PLAIN), target, tmp_path / "out", str(folder))
    weights.rename(folder / "pytorch_model.bin")
    with pytest.raises(MacroError, match="holds no weights in safetensors files"):
        export(str(PLAIN), target, tmp_path / "out", str(folder))
    assert not (tmp_path / "out").exists()


def test_a_routed_checkpoint_is_no_base_model(base, tmp_path):
    export(str(PLAIN), "routed", tmp_path / "routed", base.name)
    inside = tmp_path / "routed" / "base"
    with pytest.raises(MacroError, match=f"a routed checkpoint already; use its base model instead, {inside}"):
        export(str(PLAIN), "hf", tmp_path / "out", str(tmp_path / "routed"))
    (inside / "tokenizer.json").unlink()
    with pytest.raises(MacroError, match=r"tokenizer .* are not beside the weights, or damaged"):
        export(str(PLAIN), "hf", tmp_path / "out", str(inside))


def test_a_stopped_export_says_so_and_leaves_nothing(base, tmp_path, monkeypatch, capsys):
    def stopped(*_):
        raise KeyboardInterrupt  # what Ctrl-C becomes; the signal itself is ignored where tests run in the background

    monkeypatch.setattr("macro_routing.deploy.hf_export._write_shards", stopped)
    with pytest.raises(typer.Exit) as ended:
        export(str(PLAIN), "hf", tmp_path / "deep" / "er" / "out", base.name)
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err.strip() == "macro: stopped; nothing was written"
    assert not list(tmp_path.iterdir())


def test_an_export_that_is_asked_to_end_leaves_nothing(base, tmp_path):
    code = f"""
import signal, sys
import macro_routing.deploy.hf_export as writing
from macro_routing.cli.main import main

writing._write_shards = lambda *_: signal.raise_signal(signal.SIGTERM)
sys.argv = ["macro", "export", {str(PLAIN)!r}, "--format", "hf", "--out", "deep/er/out", "--model", {base.name!r}]
main()
"""
    (tmp_path / "asked.py").write_text(code)
    (tmp_path / "work").mkdir()
    run_script(tmp_path / "asked.py", status=143, cwd=tmp_path / "work")
    assert not list((tmp_path / "work").iterdir())
