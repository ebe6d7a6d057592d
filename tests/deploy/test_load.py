import json
import subprocess
import sys
import warnings

import pytest
from transformers import AutoModelForCausalLM

from macro_routing.deploy.route_loading import load_route
from macro_routing.errors import ModelError, NotationError, RouteError
from macro_routing.files import digest_file
from macro_routing.models import FrozenModel, freeze_model
from macro_routing.models.frozen import load_model
from macro_routing.routes import parse_route
from macro_routing.routes.route_file import RouteFile
from tests.models.tiny import LAYERS, tiny_folder, tiny_model

ROUTE = parse_route("L0-L3 L1(+h-2) RJ", LAYERS)


@pytest.fixture(scope="module")
def frozen():
    return freeze_model(tiny_model("llama"))


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def write(path, frozen, **changes):
    values = {
        "route": ROUTE,
        "model": "tiny",
        "weights_id": frozen.weights_id,
        "numerics_id": frozen.numerics_id,
        "task": "t",
    }
    path.write_text(RouteFile(**{**values, **changes}).to_json())
    return path


def test_a_file_of_this_model_is_read(frozen, tmp_path):
    assert load_route(write(tmp_path / "r.json", frozen), frozen) == ROUTE
    assert load_route(str(tmp_path / "r.json"), frozen.model) == ROUTE


def test_a_file_with_a_byte_order_mark_is_read(frozen, tmp_path):
    path = write(tmp_path / "r.json", frozen)
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert load_route(path, frozen) == ROUTE


def test_other_weights_are_rejected_unless_that_is_meant(frozen, tmp_path):
    path = write(tmp_path / "r.json", frozen)
    other = freeze_model(tiny_model("llama", seed=1))
    for model in (other, other.model):
        with pytest.raises(ModelError, match=r"r\.json belongs to tiny .* any_model=True"):
            load_route(path, model)
        with pytest.warns(UserWarning, match="belongs to tiny"):
            assert load_route(path, model, any_model=True) == ROUTE


def test_other_numerics_only_warn(frozen, tmp_path):
    path = write(tmp_path / "r.json", frozen, numerics_id="other")
    with pytest.warns(UserWarning, match="other numerics"):
        assert load_route(path, frozen) == ROUTE


def test_the_number_of_layers_always_counts(frozen, tmp_path):
    path = write(tmp_path / "r.json", frozen, route=parse_route("L0-L3 L1 RJ", LAYERS + 2))
    with pytest.raises(RouteError, match="for 8 layers, but a model in memory has 6"):
        load_route(path, frozen)
    path = write(tmp_path / "r.json", frozen, route=parse_route("L0 RJ", LAYERS + 2), weights_id="other")
    with pytest.warns(UserWarning, match="belongs"), pytest.raises(RouteError, match="for 8 layers"):
        load_route(path, frozen, any_model=True)


def test_a_plain_model_is_known_by_the_folder_it_was_loaded_from(tmp_path):
    tiny_folder(tmp_path / "model", "llama")
    loaded = load_model(str(tmp_path / "model"))
    path = write(tmp_path / "r.json", loaded)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert load_route(path, plain) == ROUTE
    half = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype="bfloat16")
    with pytest.warns(UserWarning, match="other numerics"):
        assert load_route(path, half) == ROUTE


def test_a_hub_model_is_known_by_the_hubs_cache(tmp_path, monkeypatch):
    import huggingface_hub.constants

    commit = "a" * 40
    snapshot = tmp_path / "models--me--tiny" / "snapshots" / commit
    model = tiny_model("llama")
    model.save_pretrained(snapshot)
    refs = tmp_path / "models--me--tiny" / "refs"
    refs.mkdir()
    (refs / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    model.config._name_or_path = "me/tiny"
    from macro_routing.models.identity import compute_numerics_id, compute_weights_id, digest_model_files

    weights = compute_weights_id(model.config, None, digest_model_files(snapshot))
    known = FrozenModel("me/tiny", model, None, weights, compute_numerics_id(weights, model, None, None))
    assert load_route(write(tmp_path / "r.json", known), model) == ROUTE


def damaged(values, **changes):
    return json.dumps({**json.loads(values), **changes})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda text: text.replace("macro-route/1", "macro-route/7"),
            r"r\.json: .*'macro-route/7'.*reads macro-route/1",
        ),
        (lambda text: text[: len(text) // 2], r"r\.json: the route file is damaged"),
        (lambda text: text[:9], "is not a route file"),
        (lambda _: "", "is not a route file"),
        (lambda _: "L0 RJ", "is not a route file"),
        (lambda text: damaged(text, layers="6"), "layers must be an integer, not '6'"),
        (lambda text: damaged(text, layers=True), "layers must be an integer"),
        (lambda text: damaged(text, layers=3), "cannot be read"),
        (lambda text: damaged(text, route=["L0"]), "route must be a string"),
        (lambda text: damaged(text, route="L0 L99 RJ"), "applies layer 99"),
        (lambda text: damaged(text, weights_id=None), "weights_id must be a string, not None"),
        (lambda text: damaged(text, scores=[1]), "scores must be a table"),
        (lambda text: damaged(text, execute="x"), "unknown key 'execute'"),
        (lambda text: text.replace('"task"', '"tsk"'), r"unknown key 'tsk'; did you mean 'task'"),
        (lambda text: text.replace('"layers": 6,', ""), "layers is missing"),
    ],
)
def test_damaged_files_are_rejected_by_name(frozen, tmp_path, damage, message):
    path = write(tmp_path / "r.json", frozen)
    path.write_text(damage(path.read_text()))
    with pytest.raises(NotationError, match=message):
        load_route(path, frozen)


def test_an_edited_file_of_a_run_is_rejected(frozen, tmp_path):
    path = write(tmp_path / "route.json", frozen)
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"route.json": digest_file(path)}}))
    assert load_route(path, frozen) == ROUTE
    path.write_text(path.read_text().replace("L0-L3", "L0-L2"))
    with pytest.raises(NotationError, match=r"route\.json was changed after its run was finished.*give the changed"):
        load_route(path, frozen)


def test_what_is_no_file_is_rejected(frozen, tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "missing.json", tmp_path / "binary"):
        with pytest.raises(NotationError, match="cannot read"):
            load_route(path, frozen)


def test_nothing_of_the_search_is_imported():
    code = (
        "import sys\n"
        "import macro_routing.deploy.route_loading, macro_routing.deploy.route_switching\n"
        "rooms = {'search', 'engine', 'tasks', 'evaluation', 'runs', 'report', 'cli'}\n"
        "seen = {name.split('.')[1] for name in sys.modules if name.startswith('macro_routing.')}\n"
        "assert not rooms & seen, rooms & seen\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
