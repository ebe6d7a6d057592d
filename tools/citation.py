"""How to cite the paper and this implementation, from the citation file."""

import re
from pathlib import Path

import yaml


def citation() -> str:
    """The paper and this implementation in BibTeX, from the citation file; the year is the release's."""
    root = Path(__file__).resolve().parents[1]
    entry = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.search(rf"^## {re.escape(entry['version'])} - (\d{{4}})-", changes, re.MULTILINE)
    paper = entry["preferred-citation"]
    names = " and ".join(f"{one['family-names']}, {one['given-names']}" for one in paper["authors"])
    names = names.replace("ł", r"{\l}")
    title = paper["title"].replace("MACRO", "{MACRO}", 1)
    own = entry["title"].replace("MACRO", "{MACRO}", 1)
    makers = " and ".join(f"{{{one['name']}}}" for one in entry["authors"])
    lines = [
        "```bibtex",
        "@misc{batorski_macro,",
        f"  title  = {{{title}}},",
        f"  author = {{{names}}},",
        f"  note   = {{Code: {paper['repository-code']}}}",
        "}",
        "",
        "@software{macro_routing,",
        f"  title   = {{{own}}},",
        f"  author  = {{{makers}}},",
        *([f"  year    = {{{released[1]}}},"] if released else []),
        f"  version = {{{entry['version']}}}",
        "}",
        "```",
    ]
    return "\n" + "\n".join(lines) + "\n"
