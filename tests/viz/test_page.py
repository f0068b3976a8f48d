"""Pages: escaped, complete and without outside resources."""

import re

from probattn.viz import Section, render_page, render_table


def test_cells_and_texts_are_escaped() -> None:
    table = render_table(["a<b"], [["<script>"]])
    page = render_page("t & u", "lead <i>", [Section("h<", "text >", table, note="n&")])
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "t &amp; u" in page and "lead &lt;i&gt;" in page and "n&amp;" in page


def test_best_cells_are_marked() -> None:
    table = render_table(["x", "y"], [["1", "2"], ["3", "4"]], best=[(1, 0)])
    assert '<td class="best">3</td>' in table and table.count('class="best"') == 1


def test_sentences_keep_their_lines() -> None:
    table = render_table(["row", "texts"], [["a", "who ?\nwhy <?"]], has_text=True)
    assert '<table class="text">' in table and "<td>who ?<br>why &lt;?</td>" in table
    assert "class=" not in render_table(["x"], [["1"]]).replace('class="wide"', "")


def test_page_loads_nothing() -> None:
    page = render_page("t", "l", [Section("h", "t", "<svg></svg>")])
    assert not re.search(r'(src|href)\s*=\s*"', page) and "@import" not in page and "url(" not in page


def test_sentences_are_set_as_text() -> None:
    """Numbers stand to the right on one line; sentences to the left, and they are wrapped."""
    style = render_page("t", "l", [])
    assert re.search(r"table\.text td \{[^}]*text-align: left;[^}]*white-space: normal", style)
