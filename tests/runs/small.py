"""A tiny model with a tokenizer, and tasks for it: whole runs in a second."""

import json

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from macro_routing.models.frozen import freeze_model
from macro_routing.tasks import GRADERS, Example, PromptTemplates, Task
from tests.models.tiny import VOCABULARY, tiny_model

WORDS = [f"w{number}" for number in range(VOCABULARY - 10)]


def small_tokenizer():
    names = ["<pad>", "<bos>", "<eos>", "<unk>", "Question:", "Answer:", "?", ".", ",", "|", *WORDS]
    vocabulary = {word: number for number, word in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>"
    )


def small_frozen(name="llama"):
    return freeze_model(tiny_model(name, random_norms=False), small_tokenizer(), name="small")


def small_folder(folder):
    """The same model as a folder that ``load_model`` reads."""
    model = tiny_model("llama", random_norms=False)
    model.save_pretrained(folder)
    small_tokenizer().save_pretrained(folder)
    return folder


def _example(number):
    first = (7 * number + 3) % len(WORDS)
    choices = tuple(WORDS[(first + step) % len(WORDS)] for step in (1, 5, 11, 17))
    question = f"{WORDS[first]} {WORDS[number % 13]} {WORDS[number // 13 % len(WORDS)]}"
    return Example(f"e{number}", question, "ABCD"[number % 4], choices)


def small_task(name="small", offset=0):
    pools = {"train": range(260), "test": range(300, 360)}
    examples = {split: tuple(_example(offset + number) for number in numbers) for split, numbers in pools.items()}
    return Task(name, "choice", GRADERS["letter"], PromptTemplates(), None, examples)


def write_task_file(path, count=200):
    """The same kind of data as a JSON lines file of a user's own."""
    rows = [_example(number) for number in range(count)]
    lines = [json.dumps({"q": one.question, "a": one.answer, "c": list(one.choices)}) for one in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
