"""Use a route outside of this project: route files, checkpoints, GGUF, mergekit, servers, evaluation harness."""
