"""``macro serve``: the command it prints, and what it refuses before anything is loaded."""

import io
import json
import shlex
import socket

import pytest

from macro_routing.cli import route_argument
from macro_routing.cli.serve import serve
from macro_routing.deploy.export_common import open_exportable_model
from macro_routing.deploy.serving import check_server_address
from macro_routing.errors import MacroError
from macro_routing.routes import parse_route
from tests.cli.runner import run
from tests.deploy.bases import route_file
from tests.models.tiny import tiny_folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny models with a real tokenizer."""
    place = tmp_path_factory.mktemp("models")
    for kind in ("llama", "gemma2"):
        tiny_folder(place / kind, kind)
    return place


def test_the_plain_command_is_printed_and_listens_on_loopback(folders):
    printed = run(
        "serve", "L0-L3 L2(+0.5h-2) RJ", "--model", folders / "llama", "--print", "--", "--seed", "1", fresh=True
    ).stdout
    command = shlex.split(printed)
    assert command[:3] == ["vllm", "serve", str(folders / "llama")]
    assert command[-2:] == ["--seed", "1"]
    names = command.index("--served-model-name")
    assert command[names + 1 : names + 3] == [f"{folders / 'llama'} (L0-L3 L2(+0.5h-2) RJ)", str(folders / "llama")]
    del command[names : names + 3]
    options = dict(zip(command[3::2], command[4::2], strict=True))
    assert (options["--host"], options["--port"], options["--dtype"]) == ("127.0.0.1", "8000", "float32")
    assert json.loads(options["--hf-overrides"]) == {
        "architectures": ["MacroLlamaForCausalLM"],
        "macro_model_layers": 6,
        "macro_layers": [0, 1, 2, 3, 2, 3, 4, 5],
        "macro_adds": [[4, 2, 0.5]],
    }


def test_a_route_file_is_served_with_a_word_on_other_numerics(folders, tmp_path):
    base = open_exportable_model(str(folders / "llama"))
    path = tmp_path / "route.json"
    path.write_text(route_file(base, parse_route("L0 L0 RJ", 6)).to_json())
    assert f"warning: {path} was found under other numerics" in run("serve", path, "--print").stderr
    assert "numerics" not in run("serve", "L0 L0 RJ", "--model", folders / "llama", "--print").stderr


def test_a_mixture_that_only_compares_choices_is_not_served(folders):
    done = run("serve", "1.5 [L0 RJ] - 0.5 [L0 RJ | no question]", "--model", folders / "llama", "--print", status=2)
    assert "only compares choices by likelihood" in done.stderr


def test_the_plain_command_for_a_mixture(folders):
    mixture = "1.7 [L0 RJ] - 0.7 [L0-L3 L5 RJ]"
    command = shlex.split(run("serve", mixture, "--model", folders / "llama", "--print").stdout)
    assert command[command.index("--served-model-name") + 1] == f"{folders / 'llama'} ({mixture})"
    assert json.loads(command[command.index("--hf-overrides") + 1]) == {
        "architectures": ["MacroLlamaForCausalLM"],
        "macro_model_layers": 6,
        "macro_layers": [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 5]],
        "macro_adds": [[], []],
        "macro_weights": [1.7, -0.7],
    }


def test_mistakes_are_named(folders):
    def rejected(*arguments):
        return run("serve", *arguments, status=2).stderr

    assert "vLLM is not installed here" in rejected("L0 RJ", "--model", folders / "llama", "--engine", "vllm")
    assert "gemma2 models cannot be routed in vLLM" in rejected("L0 RJ", "--model", folders / "gemma2", "--print")
    other = json.dumps({"layers": 7, "steps": [0, 1, 2]})
    assert "7" in rejected(other, "--model", folders / "llama", "--print")
    assert "there is no folder ./nothing" in rejected("L0 RJ", "--model", "./nothing", "--print")
    arguments = ("L0 RJ", "--model", folders / "llama", "--engine", "transformers", "--", "--seed", "1")
    assert "--seed: arguments after -- go to vLLM" in rejected(*arguments)


@pytest.mark.parametrize(
    "argument", ["--hf-overrides", "--hf_overrides={}", "--hf-over", "--hf-overrides.macro_adds", "--port=5"]
)
def test_nothing_after_the_dashes_replaces_what_the_command_says(argument):
    with pytest.raises(MacroError, match=r"a second one would replace it|--port belongs before --"):
        serve(route="L0 RJ", model="no model is looked for", engine_arguments=[argument, "{}"], only_print=True)


def test_an_address_that_cannot_be_had_is_rejected_before_a_model_is_loaded():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MacroError, match=rf"port {port} on 127\.0\.0\.1 is in use.*--port"):
            serve(route="L0 RJ", model="no model is looked for", port=port)
    for host in ("not a host", "192.0.2.1", "x" * 300):
        with pytest.raises(MacroError, match="is not an address of this machine"):
            serve(route="L0 RJ", model="no model is looked for", host=host, port=port)
    check_server_address("127.0.0.1", port)


def test_a_route_file_can_come_through_a_pipe(folders, monkeypatch, capsys):
    text = route_file(open_exportable_model(str(folders / "llama")), parse_route("L0-L3 L2 RJ", 6)).to_json()
    route_argument._read_standard_input.cache_clear()
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    serve(route="-", only_print=True)
    route_argument._read_standard_input.cache_clear()
    assert '"macro_layers":[0,1,2,3,2,3,4,5]' in capsys.readouterr().out
