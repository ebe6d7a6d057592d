"""Tiny models on disk with a real tokenizer, which is what exports start from."""

import json

from macro_routing.deploy.export_common import open_exportable_model
from macro_routing.routes import parse_route
from macro_routing.routes.route_file import RouteFile
from tests.models.tiny import LAYERS, tiny_model, write_tokenizer

PLAIN = parse_route("L0-L3 L2-L4 L4 RJ", LAYERS)
SHORT = parse_route("L0 L2 L1 L5", LAYERS)
ADDS = parse_route("L0-L3 L2(+h-2) L3(-0.5h-1) RJ", LAYERS)


def tiny_base(folder, architecture, *, shards="1GB", **changes):
    """A real tokenizer beside a random model; few of its tokens have an embedding unless asked for."""
    tiny_model(architecture, **changes).save_pretrained(folder, max_shard_size=shards)
    write_tokenizer(folder)
    return open_exportable_model(str(folder))


def route_file(base, route, **changes):
    scores = {"test": {"n": 200, "difference": 0.05, "p_value": 0.01}, "verdict": "The route is better | by 5 points."}
    values = {"weights_id": base.weights_id, "scores": scores, "found_by": {"method": "macro", "seed": 3}, **changes}
    return RouteFile(route, base.name, values.pop("weights_id"), "n", "category", **values)


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def rewrite_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
