"""Frozen models: find, load and check them, and apply routes to them.

Names are imported when they are used, since torch takes seconds to load and ``macro --help`` should not.
"""

from typing import TYPE_CHECKING

from macro_routing.lazy_imports import make_lazy_imports

if TYPE_CHECKING:
    from macro_routing.models.frozen import FrozenModel, freeze_model, load_model
    from macro_routing.models.hidden_states import apply_lm_head, collect_hidden_states
    from macro_routing.models.load_options import LoadOptions
    from macro_routing.models.routing import apply_route

__all__ = [
    "FrozenModel",
    "LoadOptions",
    "apply_lm_head",
    "apply_route",
    "collect_hidden_states",
    "freeze_model",
    "load_model",
]

__getattr__, __dir__ = make_lazy_imports(
    __name__,
    {
        "FrozenModel": "frozen",
        "LoadOptions": "load_options",
        "freeze_model": "frozen",
        "load_model": "frozen",
        "collect_hidden_states": "hidden_states",
        "apply_lm_head": "hidden_states",
        "apply_route": "routing",
    },
)
