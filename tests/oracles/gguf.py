"""A GGUF file as transformers and the gguf package read it, each part from the file anew."""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def load_gguf(source):
    """The tensors in float32, and the tokenizer's file as text."""
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    return model.state_dict(), tokenizer
