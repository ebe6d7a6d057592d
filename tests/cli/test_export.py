import json

import pytest

from macro_routing.cli.export import Target, export
from macro_routing.errors import MacroError
from tests.cli.runner import ENVIRONMENT, run
from tests.deploy.bases import ADDS, PLAIN, route_file, tiny_base


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_base(tmp_path_factory.mktemp("export") / "base", "llama")


@pytest.fixture
def run_folder(base, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "route.json").write_text(route_file(base, PLAIN).to_json())
    return tmp_path / "run"


def test_a_run_is_exported_with_its_evidence(run_folder, tmp_path):
    done = run("export", run_folder, "--to", "hf", "--out", tmp_path / "out")
    assert done.stdout.strip() == str(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["num_hidden_layers"] == PLAIN.length
    assert "Task: category" in (tmp_path / "out" / "README.md").read_text()


def test_mistakes_leave_nothing(base, run_folder, tmp_path):
    (tmp_path / "other.json").write_text(route_file(base, PLAIN, weights_id="0").to_json())
    (tmp_path / "taken").mkdir()
    out = tmp_path / "out"
    for route, target, model, message in (
        (str(PLAIN), Target.hf, None, "name one with --model"),
        (str(ADDS), Target.hf, base.name, r"step 5 \(L2\(\+h-2\)\)"),
        (str(tmp_path / "other.json"), Target.routed, None, "belongs to"),
        ("L0-L9", Target.routed, base.name, "layer 6"),
        (str(tmp_path / "taken"), Target.routed, None, "no finished run"),
        ("-", Target.routed, base.name, "pipe"),
    ):
        with pytest.raises(MacroError, match=message):
            export(route, target, out, model)
        assert not out.exists()
    with pytest.raises(MacroError, match="exists already"):
        export(str(run_folder), Target.routed, tmp_path / "taken")


def test_a_mistake_is_one_line(tmp_path):
    done = run("export", str(PLAIN), "--to", "hf", "--out", tmp_path / "out", status=2)
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_missing_extra_is_named(run_folder, tmp_path):
    code = f"""
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "transformers" else found(name, *rest)
sys.argv = ["macro", "export", {str(run_folder)!r}, "--to", "hf", "--out", {str(tmp_path / "out")!r}]
from macro_routing.cli.main import main
main()
"""
    done = run(code=code, status=2, environment=ENVIRONMENT)
    assert "pip install 'macro-routing[models]'" in done.stderr
