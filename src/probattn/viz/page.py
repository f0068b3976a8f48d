"""One self-contained HTML page: no scripts, no fonts, nothing loaded from elsewhere."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Section", "render_page", "render_table"]

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2330; max-width: 1180px; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p { max-width: 52rem; } .note { color: #5a6475; font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; }
th { text-align: right; border-bottom: 2px solid #1c2330; padding: .3rem .6rem; vertical-align: bottom; }
td { text-align: right; padding: .22rem .6rem; border-bottom: 1px solid #e4e7ec; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } td.best { font-weight: 700; }
table.text { width: 100%; } table.text th, table.text td { text-align: left; white-space: normal; vertical-align: top; }
table.text td:first-child { white-space: nowrap; }
tr:hover td { background: #f4f6fa; }
svg { max-width: 100%; height: auto; }
code { background: #f1f3f7; padding: .1rem .3rem; border-radius: 3px; font-size: .9em; }
"""


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        heading: Title.
        text: Plain sentences above the content; escaped.
        content: HTML or SVG; not escaped.
        note: Small print below it; escaped.
    """

    heading: str
    text: str
    content: str
    note: str = ""


def render_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    best: Sequence[tuple[int, int]] = (),
    *,
    has_text: bool = False,
) -> str:
    """An HTML table; cells are escaped, and their line breaks kept.

    Args:
        header: Column titles.
        rows: Cells.
        best: (row, column) of cells to set in bold.
        has_text: Whether cells hold sentences, which stand on the left and are broken where they do not fit.
    """
    marked = set(best)
    head = "".join(f"<th>{html.escape(title)}</th>" for title in header)
    body = []
    for i, row in enumerate(rows):
        lines = [html.escape(cell).replace("\n", "<br>") for cell in row]
        cells = "".join(
            f'<td class="best">{line}</td>' if (i, j) in marked else f"<td>{line}</td>" for j, line in enumerate(lines)
        )
        body.append(f"<tr>{cells}</tr>")
    kind = ' class="text"' if has_text else ""
    return f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def render_page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole page as a string."""
    parts = []
    for section in sections:
        note = f'<p class="note">{html.escape(section.note)}</p>' if section.note else ""
        parts.append(
            f"<h2>{html.escape(section.heading)}</h2><p>{html.escape(section.text)}</p>{section.content}{note}"
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{html.escape(title)}</h1><p>{html.escape(lead)}</p>{''.join(parts)}</body></html>\n"
    )
