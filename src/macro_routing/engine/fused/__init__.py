"""Fused decoding: many routes at once on a GPU, grouped by layer, with one CUDA graph per decoding step."""
