import json

import pytest

from tests.cli.runner import run, run_script
from tests.models.tiny import tiny_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("tiny"), "llama")


def test_doctor_prints_a_table_and_passes(folder):
    done = run("doctor", str(folder), fresh=True)
    assert "all checks passed" in done.stdout
    assert "negative control: a shared cache slot is noticed" in done.stdout
    assert "max difference" in done.stdout
    assert done.stderr == f"macro: loading torch and transformers\nmacro: loading {folder}\n"


def test_json_has_no_nan_and_nan_is_no_pass(folder, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    broken = tmp_path / "nan"
    shutil.copytree(folder, broken)
    weights = load_file(broken / "model.safetensors")
    weights["lm_head.weight"][3] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    report = json.loads(run("doctor", str(broken), "--json", status=1).stdout, parse_constant=pytest.fail)
    control = next(f for f in report["findings"] if f["name"].startswith("negative control"))
    assert not control["passed"]


def test_a_terminal_without_unicode_gets_the_rest():
    import os
    import subprocess
    import sys

    command = [sys.executable, "-m", "macro_routing.cli.main", "doctor", "--environment"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "MACRO_CACHE_DIR": "/nowhere"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_doctor_as_json_with_a_route(folder):
    report = json.loads(run("doctor", str(folder), "--route", "L0-L3 L1(+h-2) RJ", "--json").stdout)
    assert report["layers"] == 6
    assert report["weights_id"]
    assert all(finding["passed"] for finding in report["findings"])
    assert any("L1(+h-2)" in finding["detail"] for finding in report["findings"])


def test_a_failing_check_is_status_1(folder, tmp_path):
    program = tmp_path / "broken_doctor.py"
    program.write_text(
        "import sys\n"
        "from macro_routing.models import doctor\n"
        "doctor.break_cache_slots = lambda *_: None\n"
        f"sys.argv = ['macro', 'doctor', {str(folder)!r}]\n"
        "from macro_routing.cli.main import main\n"
        "main()\n"
    )
    assert "1 of 13 checks FAILED" in run_script(program, status=1).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["./nowhere"], "there is no folder ./nowhere"),
        (["~nobody-here/x"], "is not a path"),
        (["a" * 5000], "is not a path"),
        ([""], "MODEL is empty"),
        (["smollm2"], "did you mean 'smollm2-135m'"),
        (["FOLDER", "--route", "L0 L9 RJ"], "step 2 applies layer 9"),
        (["FOLDER", "--dtype", "float8"], "dtype = 'float8' is not allowed"),
        (["FOLDER", "--device", "mps"], "Apple GPUs"),
        (["FOLDER", "--device", "toaster"], "toaster"),
        (["FOLDER", "--quantization", "2bit"], "quantization = '2bit'"),
        (["FOLDER", "--attention", "magic"], "magic"),
        (["FOLDER", "--environment"], "takes no model"),
        (["missing.gguf"], "there is no file missing.gguf"),
    ],
)
def test_mistakes_are_one_line(arguments, message, folder):
    failed = run("doctor", *(str(folder) if word == "FOLDER" else word for word in arguments), status=2)
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr
    assert len([line for line in failed.stderr.splitlines() if not line.startswith("macro: loading")]) == 1


def test_an_unsupported_architecture_is_rejected_before_loading(tmp_path):
    from transformers import AutoConfig

    AutoConfig.for_model("qwen3_next").save_pretrained(tmp_path)
    failed = run("doctor", str(tmp_path), status=2)
    assert "qwen3_next models cannot be routed: linear_attention layers" in failed.stderr


def test_environment_names_versions_and_devices():
    facts = {fact["topic"]: fact for fact in json.loads(run("doctor", "--environment", "--json").stdout)}
    assert {"macro", "Python", "processor", "base", "extra [models]", "cpu", "cache folder"} <= set(facts)
    assert "torch" in facts["extra [models]"]["finding"]
    assert "GiB" in facts["processor"]["finding"]


def test_models_lists_built_in_models_and_architectures():
    listed = run("models", fresh=True).stdout
    assert "smollm2-135m" in listed
    assert "gpt_oss" in listed
    assert json.loads(run("models", "--json").stdout)["built_in"]["smollm2-135m"]["layers"] == 30
    assert "did you mean 'smollm2-135m'" in run("models", "--fetch", "smollm2", status=2).stderr
