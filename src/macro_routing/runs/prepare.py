"""How runs begin: everything loaded and checked, a new folder taken or an old one gone on with."""

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

from macro_routing.engine.batching import pad_left
from macro_routing.errors import RunError, SettingsError
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.model_answers import encode_prompts
from macro_routing.evaluation.score_store import ScoreStore, default_store_path
from macro_routing.models.catalog import find_layer_count
from macro_routing.models.frozen import FrozenModel, load_model
from macro_routing.models.hidden_states import compute_block_influence
from macro_routing.peers.per_example_search import PerExampleSearch
from macro_routing.runs.config import RunConfig, make_run_config
from macro_routing.runs.config_tables import DataSettings
from macro_routing.runs.control_run import ContrastiveRun, ControlRun
from macro_routing.runs.folder import RUN, RunFolder
from macro_routing.runs.methods import METHODS
from macro_routing.runs.per_example_run import DrLLMRun, OracleRun
from macro_routing.runs.prepared_run import PreparedRun, describe_splits
from macro_routing.runs.preset_loading import resolve_loading
from macro_routing.runs.progress import Listener, RunLog
from macro_routing.runs.result import RunResult, read_result
from macro_routing.runs.search_run import SearchRun
from macro_routing.runs.trusted_code import check_graders_trusted, check_remote_code_trusted
from macro_routing.runs.warm_start import check_init_from_exists, check_init_from_fits, make_initial_search_state
from macro_routing.search.method_names import CONTRASTIVE
from macro_routing.search.mixture_controls import ControlSearch
from macro_routing.search.searcher import Searcher
from macro_routing.tasks.splits import Splits, count_repeated_questions, make_splits
from macro_routing.tasks.task import Example, Task, number_groups
from macro_routing.workers.worker_messages import WorkerSetup, WorkerTaskSource
from macro_routing.workers.worker_pool import WorkerPool, create_worker_pool
from macro_routing.workers.worker_settings import WorkerSettings

Workers = WorkerSettings | WorkerPool | None
_FEW_VALIDATION = 20
"""Fewer validation examples decide hardly anything."""


def search_routes(
    model: FrozenModel | str, task: Task | str, folder: str | Path | None = None, **settings: Any
) -> RunResult:
    """Search a route for ``model`` on ``task``, select it on validation examples and test it once.

    ``settings`` are those of a configuration file: ``preset``, ``method``, ``seed``, ``budget`` and the tables
    ``search``, ``data``, ``decoding`` and others. The run is written to ``folder``, which must be new, or a temporary
    folder. The result names it and holds the route (``best_route``) with its evidence (``comparison``,
    ``verdict``).

    Example::

        result = search_routes("smollm2-135m", "category", preset="quick", seed=1)
        print(result.best_route, result.verdict, result.folder)
    """
    task_name = task.name if isinstance(task, Task) else task
    model_name = model.name if isinstance(model, FrozenModel) else model
    return run_search(
        make_run_config(task_name, model_name, **settings),
        Path(tempfile.mkdtemp(prefix="macro-")) / "run" if folder is None else folder,
        frozen=model if isinstance(model, FrozenModel) else None,
        task=task if isinstance(task, Task) else None,
    )


def run_search(  # noqa: PLR0913
    config: RunConfig,
    folder: str | Path,
    *,
    frozen: FrozenModel | None = None,
    task: Task | None = None,
    listener: Listener | None = None,
    store: str | Path | None = None,
    workers: Workers = None,
) -> RunResult:
    """Search, select and test in a new folder; ``frozen`` and ``task`` stand in for those the configuration names.

    ``workers`` load both by the names in the configuration.
    """
    RunFolder.check_folder_free_for_run(Path(folder))  # said before a model is loaded for nothing
    with get_or_create_worker_pool(config, workers, listener) as executor:
        run = prepare_run(config, frozen=frozen, task=task, listener=listener, store=store, executor=executor)
        run_folder = RunFolder.create(Path(folder))
        with closing(run.score_store), run_folder.lock(), _log_worker_messages(executor, run_folder):
            run_folder.write_json(RUN, run.make_run_json_contents())
            return run.run(run_folder)


def get_or_create_worker_pool(
    config: RunConfig, workers: Workers, listener: Listener | None = None
) -> AbstractContextManager[WorkerPool | None]:
    """The workers that run the evaluations; None to run them in this process.

    A pool that is there already outlasts the run.
    """
    if workers is None or isinstance(workers, WorkerPool):
        return nullcontext(workers)
    if workers.runs_in_process:
        return nullcontext()
    listener = listener or Listener()
    loading = resolve_loading(config)
    setup = WorkerSetup(config.model, loading, (_make_task_source(config), *_make_guard_task_sources(config)))
    pool = create_worker_pool(workers, setup, listener.on_message)
    listener.on_message(f"{workers.description}; answers begin when the model is loaded there")
    return pool


def _log_worker_messages(workers: WorkerPool | None, run_folder: RunFolder) -> AbstractContextManager[None]:
    """What happens to workers is written into the log of the run that they work for."""
    if workers is None:
        return nullcontext()
    log = RunLog(run_folder)
    log.on_message(f"with {workers.worker_count} worker(s)")
    return workers.copy_messages_to(log.on_message)


def resume_run(  # noqa: PLR0913
    folder: str | Path,
    *,
    frozen: FrozenModel | None = None,
    task: Task | None = None,
    listener: Listener | None = None,
    store: str | Path | None = None,
    workers: Workers = None,
    trust_remote_code: bool = False,
    trust_grader: bool = False,
) -> RunResult:
    """Go on with a run; one that is finished is only read.

    A folder may come from somebody else: code that its model or its task brings is run only when this call allows it,
    and a score store that it names is used only if it lies in the folder or is the default one.
    """
    run_folder = RunFolder.open(Path(folder))
    if run_folder.is_finished:
        return read_result(run_folder)
    header = run_folder.read_json(RUN)
    with run_folder.explain_damaged_files(RUN):
        config = _read_run_config(header, run_folder)
        _check_run_header_types(header)
    if not trust_remote_code and (frozen is None or workers is not None):
        check_remote_code_trusted(config, run_folder.path)
    if not trust_grader:
        check_graders_trusted(config, run_folder.path, loads_task=task is None or workers is not None)
    if frozen is None and task is None:  # said before a model is loaded for nothing
        _check_same_examples(header, config, run_folder)
    with run_folder.lock(), get_or_create_worker_pool(config, workers, listener) as executor:
        store = store or _find_store_of_run(header, run_folder)
        run = prepare_run(config, frozen=frozen, task=task, listener=listener, store=store, executor=executor)
        with closing(run.score_store), _log_worker_messages(executor, run_folder):
            check_run_inputs_unchanged(header, run.make_run_json_contents(), run_folder.path)
            return run.run(run_folder)


def _read_run_config(header: Mapping[str, Any], run_folder: RunFolder) -> RunConfig:
    """The configuration that a run began with."""
    config = RunConfig.from_toml_tables(header["config"]["given"], str(run_folder.path / RUN))
    if "test_seed" in header["config"]["resolved"]["data"]:
        return config
    # It began before preset `paper` shared test sets.
    return config.with_changes(data={**config.given.get("data", {}), "test_seed": None})


def _find_store_of_run(header: Mapping[str, Any], run_folder: RunFolder) -> Path:
    """The score store that a run's folder names; one elsewhere is for this call to name, not for a folder."""
    store = Path(header["store"])
    is_own = store.resolve().is_relative_to(run_folder.path.resolve()) or store == default_store_path().resolve()
    if not is_own:
        raise RunError(
            f"{run_folder.path / RUN} names the score store {str(store)[:200]}, which is neither in that folder nor the"
            " default one; if the file is yours, name it with --store"
        )
    return store


def prepare_run(  # noqa: PLR0913
    config: RunConfig,
    *,
    frozen: FrozenModel | None = None,
    task: Task | None = None,
    listener: Listener | None = None,
    store: str | Path | None = None,
    executor: WorkerPool | None = None,
) -> PreparedRun:
    """Everything loaded and checked, nothing searched and nothing written yet."""
    listener = listener or Listener()
    task = task or load_configured_task(config)
    guards = {source.name: source.load_task() for source in _make_guard_task_sources(config)}
    for named in (task, *guards.values()):
        config.resolve_decoding(named)
    if frozen is None:  # what is wrong without a model is said before one is loaded
        _check_settings_without_model(config, task)
        listener.on_message(f"loading {config.model}")
        frozen = load_configured_model(config, executor, listener)
    sizes = config.resolve_data_sizes(frozen)
    splits = split_examples(config, task, sizes)
    _report_splits(config, task, splits, sizes, listener)
    evaluator = Evaluator(
        frozen,
        task,
        config.resolve_decoding(task),
        ScoreStore(Path(store) if store else default_store_path()),
        config.resolve_examples_per_unit(frozen),
        config.decoder,
        report=listener.on_message,
        executor=executor,
    )
    searcher = config.make_searcher(
        frozen,
        evaluator.decoding,
        len(splits.train),
        lambda: measure_layer_influence(evaluator, splits.train),
        len(splits.test),
        number_groups(splits.train),
    )
    if isinstance(searcher, PerExampleSearch | ControlSearch):
        return _prepare_run_without_search_state(config, evaluator, splits, searcher, listener)
    assert isinstance(searcher, Searcher)
    _report_draws_of_budget(config, searcher, listener)
    first_state = make_initial_search_state(searcher, config.init_from, frozen, listener.on_message)
    return SearchRun(config, evaluator, splits, searcher, listener, guards, first_state=first_state)


def _check_settings_without_model(config: RunConfig, task: Task) -> None:
    """Build the search without the weights, where the number of layers is known and settles its settings."""
    check_init_from_exists(config.init_from)
    splits, layers = split_examples(config, task, config.data), find_layer_count(config.model)
    if layers is None or config.preset == "paper":
        return
    no_influence = [0.0] * layers
    decoding = config.resolve_decoding(task)
    sizes = len(splits.train), len(splits.test)
    groups = number_groups(splits.train)
    searcher = config.make_searcher(layers, decoding, sizes[0], lambda: no_influence, sizes[1], groups)
    if isinstance(searcher, Searcher):
        check_init_from_fits(config.init_from, searcher, layers)


def _report_splits(config: RunConfig, task: Task, splits: Splits, sizes: DataSettings, listener: Listener) -> None:
    """Tell what the data has not, or has twice."""
    if task.repeated_rows:
        listener.on_message(f"rows that repeat another row: {task.repeated_rows}; they are left out")
    if Path(config.task).suffix and (repeated := count_repeated_questions(task)):  # a file of the user's own
        repeats = f"rows that ask what another row asks, with another answer or other choices: {repeated}"
        listener.on_message(f"{repeats}; no two splits share a question, so some are left out")
    for name in ("training", "validation", "test"):
        available = len(splits.get_split("train" if name == "training" else name))
        if (requested := config.given.get("data", {}).get(name, 0)) > available:
            listener.on_message(f"{requested} {name} examples were requested, the data has {available}")
    if len(splits.validation) < min(_FEW_VALIDATION, sizes.validation):
        listener.on_message(
            f"only {len(splits.validation)} validation examples are left beside {len(splits.train)} for training: the"
            f" data is divided in the ratio {sizes.training} to {sizes.validation}; lower --training or raise"
            " --validation"
        )
    if task.test_size and len(splits.test) < min(task.test_size, sizes.test or task.test_size):
        listener.on_message(
            f"{task.name} has {len(splits.test)} test examples here, {task.test_size} are published: accuracies are not"
            " comparable with published ones"
        )


def _report_draws_of_budget(config: RunConfig, searcher: Searcher, listener: Listener) -> None:
    """Tell where a budget sets the number of draws, so that the one that was asked for has no effect."""
    draws, planned = config.given.get("search", {}).get("draws"), searcher.max_draws_per_round
    if draws is not None and config.budget is not None and draws != planned:
        listener.on_message(
            f"draws = {draws} has no effect beside budget = {config.budget}: {config.method} draws as many routes as"
            f" the budget pays for, up to {planned} in a round"
        )


def load_configured_task(config: RunConfig) -> Task:
    """The task that the settings name."""
    return _make_task_source(config).load_task()


def _make_task_source(config: RunConfig) -> WorkerTaskSource:
    data = config.data
    return WorkerTaskSource(
        config.task, data.data_dir, config.task_seed, data.question, data.answer, data.choices, data.kind
    )


def _make_guard_task_sources(config: RunConfig) -> list[WorkerTaskSource]:
    return [WorkerTaskSource(name, config.data.data_dir, config.task_seed) for name in config.guard.tasks]


def split_examples(config: RunConfig, task: Task, sizes: DataSettings) -> Splits:
    """The task's examples as a run of these sizes parts them."""
    splits = make_splits(
        task, seed=config.seed, training=sizes.training, validation=sizes.validation, test_seed=sizes.test_seed
    )
    return dataclasses.replace(splits, test=splits.test[: sizes.test])


def check_examples_unchanged(header: Mapping[str, Any], config: RunConfig, task: Task, path: Path) -> None:
    """Reject a run whose questions are other ones by now; needs no model, the sizes are the run's."""
    sizes = DataSettings(**{**header["config"]["resolved"]["data"], "test_seed": config.data.test_seed})
    splits = split_examples(config, task, sizes)
    if describe_splits(splits) != header["splits"]:
        raise RunError(f"{path} was run on other examples than {config.task} has now; name another folder with --out")


def load_configured_model(config: RunConfig, workers: WorkerPool | None, listener: Listener) -> FrozenModel:
    """The model as this process needs it: loaded, or only known where workers have it on their GPUs."""
    load = load_model if workers is None else workers.load_driver_model
    loading = resolve_loading(config)
    if loading != config.loading:
        listener.on_message(f"{config.model} is loaded in {loading.quantization}, as in the paper")
    return load(config.model, loading, listener.on_message)


def _prepare_run_without_search_state(
    config: RunConfig,
    evaluator: Evaluator,
    splits: Splits,
    searcher: PerExampleSearch | ControlSearch,
    listener: Listener,
) -> PreparedRun:
    """A run of a control, or one whose result is not a route."""
    for name, value in (
        ("init_from", config.init_from),
        ("guard", config.guard.tasks),
        ("max_minutes", config.max_minutes),
    ):
        if value:
            raise SettingsError(f"{name} is not allowed with method = {config.method}; leave it out")
    if isinstance(searcher, ControlSearch):
        if searcher.control != CONTRASTIVE:
            return ControlRun(config, evaluator, splits, searcher, listener)
        contrastive = ContrastiveRun(config, evaluator, splits, searcher, listener)
        contrastive.check_amateur()
        return contrastive
    kind = DrLLMRun if METHODS[config.method].kind == "router" else OracleRun
    return kind(config, evaluator, splits, searcher, listener)


_INFLUENCE_EXAMPLES, _INFLUENCE_BATCH = 64, 16


def measure_layer_influence(evaluator: Evaluator, examples: Sequence[Example]) -> list[float]:
    """How much each layer does to the prompts of some training examples."""
    prompts = encode_prompts(evaluator.frozen, evaluator.task, examples[:_INFLUENCE_EXAMPLES], evaluator.decoding)
    device = evaluator.frozen.model.device
    parts = [prompts[start : start + _INFLUENCE_BATCH] for start in range(0, len(prompts), _INFLUENCE_BATCH)]
    return compute_block_influence(evaluator.frozen.model, [pad_left(part, device) for part in parts])


def check_same_settings(before: dict[str, Any], config: RunConfig, path: Path) -> None:
    """Reject to take a run for one that was asked for otherwise."""
    given, now = before["config"]["given"], json.loads(json.dumps(config.to_toml_tables()))
    if changed := [name for name in now if given.get(name) != now[name]]:
        raise RunError(
            f"{path} was run with other settings ({', '.join(changed)}); name another folder, or give the settings it"
            " was begun with"
        )


_CHECKED_PARTS = {
    "model": "the model's weights",
    "scope": "the model's numerics, the prompts or the grader",
    "splits": "the task's data",
    "guards": "a guard task's data",
}
"""Parts of a run's header that must stay as they are, by what they are."""


def _check_run_header_types(header: dict[str, Any]) -> None:
    if not isinstance(header["store"], str):
        raise TypeError("the path of its scores is not a string")
    for what in _CHECKED_PARTS:
        if not isinstance(header[what], dict):
            raise TypeError(f"{what} is not an object")


def _check_same_examples(header: Mapping[str, Any], config: RunConfig, run_folder: RunFolder) -> None:
    """Reject to go on with other data, without a model."""
    with run_folder.explain_damaged_files(RUN):
        sizes = DataSettings(**header["config"]["resolved"]["data"])
    splits = describe_splits(split_examples(config, load_configured_task(config), sizes))
    check_run_inputs_unchanged(header, {**header, "splits": splits}, run_folder.path)


def check_run_inputs_unchanged(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Reject to go on with another model, other data or other grading than the run began with."""
    for what, name in _CHECKED_PARTS.items():
        if before[what] != now[what]:
            raise RunError(f"{path} cannot be continued: {name} are not those it began with; start a new run")
