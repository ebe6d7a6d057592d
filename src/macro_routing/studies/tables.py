"""One table, three files: CSV with the plain numbers, Markdown and LaTeX as people print them."""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from macro_routing.report.formatting import (
    format_p_value,
    format_percent_number,
    format_points,
    format_points_interval,
)
from macro_routing.report.tables import flatten_mapping

Row = Mapping[str, Any]
_LATIN_1 = 0xFF
_RANK_SYMBOLS = ("", "①", "②", "③")
RANKS_NOTE = (
    "① ② ③ mark the three best values of a column within a model (bold, underlined, italic in LaTeX); ties share one."
)


def _give_row_no_rank(_row: Row) -> int:
    return 0


@dataclass(frozen=True)
class Column:
    """A heading, and what a row shows under it."""

    heading: str
    format_cell: Callable[[Row], str]
    is_number: bool = True
    """Set to the right."""
    is_code: bool = False
    """A route: set in a fixed width."""
    rank: Callable[[Row], int] = _give_row_no_rank
    """1 to 3 for the best three, 0 for the others."""


def make_text_column(heading: str, key: str, *, is_code: bool = False) -> Column:
    """A column of text."""
    return Column(heading, lambda row: str(row.get(key) or ""), is_number=False, is_code=is_code)


def number_column(heading: str, key: str, format_number: Callable[[float], str] = "{}".format) -> Column:
    """A column of numbers; a missing one is left blank."""
    return Column(heading, lambda row: "" if row.get(key) is None else format_number(row[key]))


def percentage_column(heading: str, key: str) -> Column:
    """A column of shares in percent."""
    return number_column(heading, key, format_percent_number)


def difference_columns(heading: str = "difference, points") -> list[Column]:
    """A difference with its interval and p-values: the keys of ``compute_paired_score_difference``."""

    def format_difference_with_interval(row: Row) -> str:
        if row.get("difference") is None:
            return ""
        return f"{format_points(row['difference'])} ({format_points_interval(row['low'], row['high'])})"

    return [
        Column(f"{heading} (95 % interval)", format_difference_with_interval),
        number_column("p", "p", format_p_value),
        number_column("p, Holm", "p_holm", format_p_value),
    ]


@dataclass(frozen=True)
class Table:
    """Rows of plain values, and how they are shown."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    def to_csv(self) -> str:
        """All plain values of the rows, for programs; nested ones as ``accuracy.category``."""
        rows = [flatten_row(row) for row in self.rows]
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        lines: list[list[Any]] = [names, *([row.get(name) for name in names] for row in rows)]
        writer.writerows(
            [remove_line_breaks(value) if isinstance(value, str) else value for value in line] for line in lines
        )
        return text.getvalue()

    def to_markdown(self) -> str:
        """The table with its title and notes."""
        heads = [escape_markdown(column.heading) for column in self.columns]
        rules = ["---:" if column.is_number else "---" for column in self.columns]
        body = [[_format_markdown_cell(column, row) for column in self.columns] for row in self.rows]
        lines = ["| " + " | ".join(cells) + " |" for cells in (heads, rules, *body)]
        return "\n\n".join([f"# {remove_line_breaks(self.title)}", "\n".join(lines), *self.notes]) + "\n"

    def to_latex(self) -> str:
        """The same as a floating table."""
        layout = "".join("r" if column.is_number else "l" for column in self.columns)
        body = [" & ".join(_format_latex_cell(column, row) for column in self.columns) + r" \\" for row in self.rows]
        caption = " ".join([f"{self.title}.", *map(remove_markdown_marks, self.notes)])
        lines = [
            "% needs the packages booktabs, amssymb and graphicx; a table wider than the text is made smaller",
            r"\begin{table}",
            r"\centering",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{layout}}}",
            r"\toprule",
            " & ".join(escape_latex(column.heading) for column in self.columns) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            rf"\caption{{{escape_latex(caption)}}}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def to_formatted_records(self) -> list[dict[str, str]]:
        """What is shown, by heading: for pages that are rendered from records."""
        return [
            {column.heading: _format_markdown_cell(column, row, escape=False) for column in self.columns}
            for row in self.rows
        ]


def flatten_row(row: Row) -> dict[str, Any]:
    """Nested values by dotted name, lists as text."""
    values = flatten_mapping(row)
    return {
        name: " ".join(map(str, value)) if isinstance(value, list | tuple) else value for name, value in values.items()
    }


def _format_markdown_cell(column: Column, row: Row, *, escape: bool = True) -> str:
    text, rank = remove_line_breaks(column.format_cell(row)), column.rank(row)
    if column.is_code and text:
        text = f"`{text}`"
    elif escape:
        text = escape_markdown(text)
    if rank == 1:
        text = f"**{text}**"
    return f"{text} {_RANK_SYMBOLS[rank]}".strip()


def remove_line_breaks(text: str) -> str:
    """Text without any sign that some reader ends a line at: a table's row is a line in all three files."""
    return " ".join(text.splitlines())


def escape_markdown(text: str) -> str:
    """Text that no table of Markdown breaks at; nothing in it is emphasis."""
    return re.sub(r"([|*_`<\\])", r"\\\1", remove_line_breaks(text))


_LATEX_RANKS = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}", r"\textit{{{}}}")


def _format_latex_cell(column: Column, row: Row) -> str:
    text = escape_latex(column.format_cell(row))
    if column.is_code and text:
        text = rf"\texttt{{{text}}}"
    return _LATEX_RANKS[column.rank(row)].format(text)


_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "", "pi", "rho", "varsigma", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
)
"""The small letters in the order of the alphabet; LaTeX has no omicron."""
_LARGE_GREEK = ("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega")
_LATEX_ESCAPES = {
    **{chr(0x3B1 + index): rf"$\{name}$" for index, name in enumerate(_GREEK) if name},
    **{sign: rf"$\{name}$" for sign, name in zip("ΓΔΘΛΞΠΣΥΦΨΩ", _LARGE_GREEK, strict=True)},
    # After the end of a row these would be taken for its options.
    "[": "{[}",
    "*": "{*}",
    "\\": r"\textbackslash{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "→": r"$\to$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "∞": r"$\infty$",
    "∈": r"$\in$",
    "∑": r"$\sum$",
    "√": r"$\surd$",
    "←": r"$\leftarrow$",
    "↔": r"$\leftrightarrow$",
    "⇒": r"$\Rightarrow$",
    "·": r"$\cdot$",
    "✓": r"\checkmark{}",
    "–": "--",
    "—": "---",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "•": r"\textbullet{}",
    "…": r"\ldots{}",
    "①": "(1)",
    "②": "(2)",
    "③": "(3)",
    "\u00a0": "~",
    "\u202f": r"\,",
}


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is; signs that pdflatex has no letter for are named by their number."""
    plain = re.sub(r"\s", lambda match: match[0] if match[0] in _LATEX_ESCAPES else " ", text)
    return re.sub("-(?=-)|[^-]", _escape_latex_sign, plain)


def _escape_latex_sign(match: re.Match[str]) -> str:
    sign = match[0]
    if sign == "-":  # before another one: two of them would become a dash
        return "-{}"
    plain = sign if sign.isprintable() and ord(sign) <= _LATIN_1 else f"{{[}}U+{ord(sign):04X}]"
    return _LATEX_ESCAPES.get(sign, plain)


def remove_markdown_marks(text: str) -> str:
    """Words of a note without the marks of Markdown, which mean nothing elsewhere."""
    return re.sub(r"`([^`]*)`|\*([^*\s][^*]*)\*", lambda match: match[1] or match[2] or "", text)
