"""Unfinished runs of every method, damaged and gone on with.

A state has a checksum, which whoever writes a state can compute: so states are damaged inside, and sealed again.
"""

import io
import json
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from macro_routing.runs import Listener, resume_run, run_search
from macro_routing.runs import folder as files_of_run
from macro_routing.runs.methods import METHODS
from macro_routing.search import state_file
from tests.fuzz.inputs import files, mistaken
from tests.runs.small import small_folder, small_frozen, small_task
from tests.runs.test_run import CONFIG

_BASE = CONFIG.with_changes(
    budget=240, data={"training": 40, "validation": 10, "test": 20}, search={}, space={"max_length": 10}
)
_SEARCH = {
    "guided": {"draws": 6, "iterations": 3},
    "macro": {"iterations": 2, "draws": 4, "elite": 2, "k": 3},
    "macro-restarts": {"iterations": 2, "draws": 3, "elite": 2, "k": 3},
    "random": {"iterations": 2, "draws": 4, "k": 3},
    "drllm": {"simulations": 5, "epochs": 1},
    "drllm-ext": {"simulations": 5, "epochs": 1},
}


class _Enough(Exception):  # noqa: N818 it is no error
    """The run has gone on far enough."""


class _KeepTwoStates(Listener):
    """Copies the folder after its first round, and stops before the test set is met."""

    def __init__(self, folder, after_round):
        self.folder, self.after_round = folder, after_round

    def on_round(self, report):  # noqa: ARG002
        if not self.after_round.exists():
            shutil.copytree(self.folder, self.after_round)

    def on_stage(self, stage, evaluations):  # noqa: ARG002
        if stage == "test":
            raise _Enough


class _StopSoon(Listener):
    """Stops after a round, or before the test set is met."""

    def on_round(self, report):  # noqa: ARG002
        raise _Enough

    def on_stage(self, stage, evaluations):  # noqa: ARG002
        if stage == "test":
            raise _Enough


def make_unfinished_runs(folder):
    """Folders of runs of every method: after a round, and with a chosen route."""
    frozen, task = small_frozen(), small_task()
    amateur = Path(folder) / "amateur"
    settings = {**_SEARCH, "contrastive": {"amateur": str(amateur if amateur.exists() else small_folder(amateur))}}
    for method in METHODS:
        chosen, after_round = Path(folder) / f"{method}-chosen", Path(folder) / f"{method}-begun"
        if not chosen.exists():
            config = _BASE.with_changes(method=method, search=settings.get(method, {}))
            with suppress(_Enough):
                run_search(
                    config, chosen, frozen=frozen, task=task, listener=_KeepTwoStates(chosen, after_round),
                    store=Path(folder) / "u.sqlite",
                )  # fmt: skip
    return sorted(path.parent for path in Path(folder).glob(f"*-*/{files_of_run.RUN}"))


def unfinished_runs(folder):
    """Files of unfinished runs of every method, resumed."""
    runs = make_unfinished_runs(folder)
    frozen, task = small_frozen(), small_task()

    def read(change, place):
        run, name, raw = change
        shutil.rmtree(place / "run", ignore_errors=True)
        shutil.copytree(run, place / "run")
        (place / "run" / name).write_bytes(raw)
        with suppress(_Enough):
            store = Path(folder) / "u.sqlite"
            return resume_run(place / "run", frozen=frozen, task=task, listener=_StopSoon(), store=store)

    changes = [_damage_files(run) for run in runs]
    return st.one_of(*changes), read


def _damage_files(run):
    """A file of a run with what somebody made of it."""
    named = [files_of_run.RUN, *([files_of_run.CANDIDATES] if (run / files_of_run.CANDIDATES).is_file() else [])]
    kinds = [st.tuples(st.just(run), st.just(name), files((run / name).read_bytes())) for name in named]
    states = sorted((run / "states").glob("*.npz"))
    if states:
        last = f"states/{states[-1].name}"
        sealed = _sealed_again(states[-1])
        kinds += [st.tuples(st.just(run), st.just(last), sealed)] * 3
    kinds.append(st.tuples(st.just(run), st.just(files_of_run.ENDED), files(b'{"reason": "max_minutes", "rounds": 1}')))
    return st.one_of(*kinds)


@st.composite
def _sealed_again(draw, path):
    """A state with something wrong in it and a checksum that fits."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    head = json.loads(arrays.pop("head").tobytes())
    if arrays and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(arrays)))
        array = arrays[name]
        arrays[name] = draw(
            st.sampled_from(
                [
                    *(array.T, array[:1], array * 0, -array, array + 1e300, array.astype(np.float32)),
                    *(np.zeros(0), np.zeros((3, 2**12)), np.array(["text"]), np.full_like(array, np.nan)),
                ]
            )
        )
    else:
        head["state"] = draw(mistaken(head["state"]))
    head["checksum"] = state_file._compute_checksum(head["state"], arrays)
    arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, **{name: np.ascontiguousarray(array) for name, array in arrays.items()})
    return file.getvalue()
