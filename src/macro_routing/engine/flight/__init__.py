"""Many routes decoding at once on a GPU: their steps grouped by layer, every layer's step a captured graph."""
