"""The workflows, hooks and templates parse, and name commands and versions that exist."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSIONS = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one]


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path):
    return [step for job in load(path)["jobs"].values() for step in job["steps"]]


def test_there_are_workflows_for_checks_docs_and_releases():
    assert [path.stem for path in WORKFLOWS] == ["checks", "docs", "release"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_make_target_exists(path):
    called = [name for step in steps(path) for name in re.findall(r"\bmake ([\w-]+)", step.get("run", ""))]
    assert called
    assert set(called) <= TARGETS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_major_version(path):
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", name) for name in used)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_secret_is_used(path):
    assert "secrets." not in path.read_text(encoding="utf-8")


def test_python_versions_are_those_of_the_package():
    jobs = load(ROOT / ".github" / "workflows" / "checks.yml")["jobs"]
    for name in ("test-core", "test"):
        assert jobs[name]["strategy"]["matrix"]["python-version"] == VERSIONS
    single = {
        step["with"]["python-version"] for path in WORKFLOWS for step in steps(path) if "setup-python" in str(step)
    }
    assert single - {"${{ matrix.python-version }}"} <= set(VERSIONS)
    assert PROJECT["requires-python"] == f">={VERSIONS[0]}"


def test_only_publishing_may_ask_for_a_token():
    for path in WORKFLOWS:
        workflow = load(path)
        assert workflow["permissions"] == {"contents": "read"}
        granted = {name for name, job in workflow["jobs"].items() if "id-token" in job.get("permissions", {})}
        assert granted == ({"publish"} if path.stem == "release" else set())


def test_hooks_run_what_make_check_runs():
    rule = re.search(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[1]
    checks = [line.strip().replace("$(BIN)", ".venv/bin").removesuffix(" .") for line in rule.splitlines()]
    (repository,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == checks
    assert all(hook["language"] == "system" for hook in repository["hooks"])


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_templates_ask_for_something(path):
    form = load(path)
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
