import json
import subprocess
import sys

import pytest

from macro_routing.cli.route_argument import check_route_without_model
from macro_routing.errors import MacroError
from tests.cli.runner import run


def test_show_prints_the_facts():
    shown = run("route", "show", "L0-L7 L3-L9 RJ", "--layers", "28")
    assert "L0-L7 L3 RJ" in shown.stdout
    assert "33 applications on 28 layers" in shown.stdout
    assert "0-------7<3------------------------27" in shown.stdout


def test_show_as_json():
    facts = json.loads(run("route", "show", "3,5", "-n", "8", "--json").stdout)
    assert facts["length"] == 10
    assert facts["repeats"] == 2
    assert facts["route"] == "L0-L4 L3 RJ"
    assert facts["steps"][5] == "L3"
    assert not facts["is_standard"]


@pytest.mark.parametrize("form", ["text", "json", "ranges", "mergekit"])
def test_convert_there_and_back(form, tmp_path):
    path = tmp_path / "route"
    path.write_text(run("route", "convert", "L0-L7 L3-L9 RJ", "-n", "28", "--format", form).stdout)
    assert run("route", "convert", str(path), "-n", "28", "--format", "text").stdout == "L0-L7 L3 RJ\n"
    piped = run("route", "convert", "-", "-n", "28", "--format", "text", stdin=path.read_text(), fresh=True)
    assert piped.stdout == "L0-L7 L3 RJ\n"


def test_diff_of_two_texts():
    shown = run("route", "diff", "L0 RJ", "L0-L7 L3 RJ", "--layers", "28").stdout
    assert "28 and 33 applications on 28 layers" in shown
    assert "added at steps 9-13: L3 L4 L5 L6 L7" in shown
    assert "nothing: both execute the same steps" in run("route", "diff", "L0 RJ", "L0-L3 RJ", "-n", "8").stdout


def test_show_says_that_a_route_is_not_recommended(tmp_path):
    from macro_routing.routes import parse_route
    from macro_routing.routes.route_file import RouteFile

    for recommended in (True, False):
        file = RouteFile(
            parse_route("L0 L2 RJ", 6), "tiny", "w", "n", "sums", recommended=recommended, recommendation="it is worse"
        )
        (tmp_path / "route.json").write_text(file.to_json())
        shown = run("route", "show", tmp_path / "route.json").stdout
        assert ("recommended  no: it is worse" in shown) is not recommended


def test_diff_of_route_files_shows_the_evidence(tmp_path):
    from macro_routing.routes import parse_route
    from macro_routing.routes.route_file import RouteFile

    for name, text, right in (("a", "L0-L3 L1 RJ", 0.5), ("b", "L0-L3 L1(+h-2) RJ", 0.75)):
        scores = {"test": {"routed": right}, "verdict": f"verdict {name}\x1b[31m"}
        file = RouteFile(parse_route(text, 6), "tiny", "w", "n", "sums", scores=scores)
        (tmp_path / f"{name}.json").write_text(file.to_json())
    pair = ("route", "diff", tmp_path / "a.json", tmp_path / "b.json")
    shown = run(*pair).stdout
    assert "changed at step 5: L1 → L1(+h-2)" in shown
    assert "step 5: L1(+h-2) takes the output of step 2 (L1)" in shown
    assert "* scores.test.routed  0.5   0.75" in shown
    assert "verdict on B: verdict b" in shown
    assert "\x1b" not in shown
    facts = json.loads(run(*pair, "--json").stdout)
    assert facts["edits"][0]["new"] == ["L1(+h-2)"]
    assert facts["evidence"]["b"]["scores.test.routed"] == 0.75
    with_text = json.loads(run("route", "diff", "L0 RJ", tmp_path / "b.json", "--json").stdout)
    assert with_text["a"]["layers"] == 6
    assert with_text["evidence"]["a"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["route", "show", "L0 L5x RJ", "-n", "8"], "token 2 of 3, 'L5x'"),
        (["route", "show", "L0 L9 RJ", "-n", "8"], "step 2 applies layer 9"),
        (["route", "show", ".", "-n", "8"], ". is a folder"),
        (["route", "show", "L0 RJ"], "--layers"),
        (["route", "diff", "L0 RJ", "L0 L1 RJ"], "--layers"),
        (["route", "diff", "L0 RJ", "L0 L9 RJ", "-n", "8"], "step 2 applies layer 9"),
        (["route", "show", "missing.json", "-n", "8"], "there is no file missing.json"),
        (
            ["route", "convert", "L0 L1 L2(+h-1) RJ", "-n", "8", "--format", "ranges"],
            "cannot express the add at step 3",
        ),
        (
            ["route", "convert", "L0 L1 L2(+h-1) RJ", "-n", "8", "--format", "mergekit"],
            "cannot express the add at step 3",
        ),
        (["route", "convert", "L0 RJ", "-n", "8", "--format", "yaml"], "'yaml' is not one of"),
        (["route", "show", "l0-l7 l3 rj", "-n", "8"], "did you mean 'L0-L7'?"),
        *(
            ([*command, "runs/nothere"], "there is no run's folder and no file runs/nothere")
            for command in (["explain"], ["chat", "smollm2-135m", "--route"], ["doctor", "smollm2-135m", "--route"])
        ),
        (["rout"], "Did you mean 'route'"),
        (["search", "--task", "category", "--preset", "quik"], "did you mean 'quick'?"),
        (["search", "--task", "category", "--mode", "likelyhood", "--dry-run"], "did you mean 'likelihood'?"),
        (["search", "--task", "category", "--racing", "exakt", "--dry-run"], "did you mean 'exact'?"),
    ],
)
def test_mistakes_are_one_clear_message(arguments, message):
    failed = run(*arguments, status=2)
    assert message in " ".join(failed.stderr.split())
    assert "Traceback" not in failed.stderr
    assert not failed.stdout


def test_a_long_message_keeps_its_beginning_and_its_end():
    said = run("route", "show", "L0 " + "Lx " * 9000, "-n", "8", status=2).stderr
    assert said.startswith("macro: error: ")
    assert len(said) < 2100


def test_version():
    assert run("--version").stdout.startswith("macro ")


def test_a_closed_pipe_is_no_traceback():
    import subprocess
    import sys

    command = f"{sys.executable} -m macro_routing.cli.main route show 'L0 RJ' -n 9999 | head -c 20"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_draws_are_printed_as_they_are_drawn():
    command = [sys.executable, "-m", "macro_routing.cli.main", "route", "draws", "--layers", "32", "--count", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        process.kill()  # all of them take minutes
    whole = run("route", "draws", "--layers", "32", "--count", "2").stdout.splitlines()
    assert first.split() == whole[0].split()


def test_draws_are_the_papers():
    printed = run("route", "draws", "--layers", "32", "--max-length", "44", "--seed", "42", "--count", "18").stdout
    assert printed.splitlines()[-1] == "17  L0-L7 L3(+h-4) L5(+h-6) L6-L11 RJ"
    drawn = json.loads(run("route", "draws", "--layers", "28", "--seed", "1", "--json").stdout)
    assert len(drawn) == 30
    assert drawn[27] == "L0-L5 L1-L9 RJ"
    # The paper's routes of its models with 36 layers have at most 40 steps; otherwise it is the layers and twelve.
    lengths = [[], ["--max-length", "40"], ["--max-length", "48"]]
    of_36 = [json.loads(run("route", "draws", "--layers", "36", *more, "--json").stdout) for more in lengths]
    assert of_36[0] == of_36[1] != of_36[2]
    refused = run("route", "draws", "--layers", "28", "--max-length", "3", status=2)
    assert "it must be at least 28" in refused.stderr


def test_a_route_without_quotes_is_explained():
    said = run("route", "show", "L0-L17", "L17", "RJ", "--layers", "30", status=2).stderr
    assert "quote a route of several tokens: 'L0-L17 L17 RJ'" in said
    assert "quote" not in run("tasks", "more", status=2).stderr


def test_a_route_beyond_the_models_layers_is_told_before_it_is_loaded():
    with pytest.raises(MacroError, match="the model's 30 layers are numbered 0 to 29"):
        check_route_without_model("L0-L40 RJ", "smollm2-135m")
    check_route_without_model("L0-L40 RJ", "some/hub-id")  # only loading tells
