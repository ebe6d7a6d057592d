"""A model as it would be loaded is known without its weights: its identities, its layers, its chat format."""

import pytest

from macro_routing.models import frozen as module
from macro_routing.models.frozen import load_model, make_stand_in_without_weights
from macro_routing.models.load_options import LoadOptions
from tests.models.tiny import VARIANTS, tiny_model
from tests.runs.small import small_tokenizer

_MODEL_TYPES = sorted({name.partition(" ")[0] for name in VARIANTS})


@pytest.mark.parametrize("name", _MODEL_TYPES)
def test_identities_are_those_of_the_loaded_model(tmp_path, name, monkeypatch):
    tiny_model(name).save_pretrained(tmp_path)
    small_tokenizer().save_pretrained(tmp_path)
    for options in (LoadOptions(), LoadOptions(dtype="bfloat16", attention="eager")):
        loaded = load_model(str(tmp_path), options)
        with monkeypatch.context() as patch:
            patch.setattr(module, "_load_weights", None)
            stand_in = make_stand_in_without_weights(str(tmp_path), options)
        for what in ("weights_id", "numerics_id", "layers", "chat"):
            assert getattr(stand_in, what) == getattr(loaded, what), what
        assert (stand_in.model.device, stand_in.model.dtype) == (loaded.model.device, loaded.model.dtype)
