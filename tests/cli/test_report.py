"""The command: one run's page, several runs' page, figures."""

from tests.cli.runner import run
from tests.report.folders import complete


def test_one_run_and_its_figures(tmp_path):
    place = complete(tmp_path / "a")
    done = run("report", place.path, "--figures", tmp_path / "figures", fresh=True)
    printed = done.stdout.split()
    assert printed[0] == str(place.path / "report.html")
    assert str(tmp_path / "figures" / "route.svg") in printed
    assert str(tmp_path / "figures" / "route.png") in printed
    assert (place.path / "report.html").is_file()


def test_several_runs(tmp_path):
    places = [complete(tmp_path / name, seed=seed).path for seed, name in enumerate("ab")]
    assert run("report", *places, cwd=tmp_path).stdout.strip() == "comparison.html"
    done = run("report", *places, "--output", tmp_path / "both.html", "--figures", tmp_path / "figures")
    assert "2 runs compared" in (tmp_path / "both.html").read_text(encoding="utf-8")
    assert str(tmp_path / "figures" / "differences.svg") in done.stdout
    assert not (places[0] / "report.html").exists()


def test_what_is_no_run_is_named(tmp_path):
    place = complete(tmp_path / "a").path
    done = run("report", place, tmp_path / "nothing", "--output", tmp_path / "both.html", status=2)
    assert "is not a run's folder" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "both.html").exists()


def test_help_needs_no_heavy_library():
    code = (
        "import sys; from macro_routing.cli import main, report; assert not {'torch', 'vl_convert'} & set(sys.modules)"
    )
    run(code=code)
