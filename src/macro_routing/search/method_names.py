"""The names of the ways to search, where a command can list them without loading any."""

PMI, DOLA, SKIP_LAYER_CD = "pmi", "dola", "skip-layer-cd"
ROUTE_AVERAGE, READOUTS, CONTRASTIVE = "route-average", "readouts", "contrastive"
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
    *(PMI, DOLA, SKIP_LAYER_CD, ROUTE_AVERAGE, READOUTS, CONTRASTIVE),
    "standard",
)
