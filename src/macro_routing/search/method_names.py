"""The names of the ways to search, where a command can list them without loading any."""

METHOD_NAMES = (
    "guided",
    "macro",
    "macro-restarts",
    "random",
    "rys",
    "rys-counts",
    "rys-beam",
    "rys-surrogate",
    "shortgpt",
    "early-exit",
    "drllm",
    "drllm-ext",
    "cola",
    "pmi",
    "dola",
    "skip-layer-cd",
    "route-average",
    "readouts",
    "contrastive",
    "standard",
)
