"""What the book's pages are given while they are built: the scripts that they use, none from another host, and the
interface of gdlib.

A Sphinx extension (`_config.yml` names it). Jupyter Book brings one that puts the address of another host into every
page, for a button that this book does not have; it is not heard. What a page needs is seen from what stands on it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

# what stands on a page -> the files that it then loads, of those in book/_static; plotly's comes from its wheel
USES = {
    'class="gd-table gd-trace"': ("trace.css", "trace.js"),
    'class="gd-calculator"': ("calculator.css", "calculator.js"),
    'class="plotly-graph-div"': ("plotly.min.js", "plotly-figures.js"),
}
PLOTLY = "plotly.min.js"
NOT_HEARD = "sphinx_thebe"


def setup(app) -> dict:
    app.connect("config-inited", _silence)
    app.connect("source-read", _read)
    app.connect("html-page-context", _page)
    app.connect("build-finished", _finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _silence(app, config) -> None:
    for listeners in app.events.listeners.values():
        listeners[:] = [one for one in listeners if not one.handler.__module__.startswith(NOT_HEARD)]


def _read(app, docname: str, source: list[str]) -> None:
    from gdlib.report import reference

    if reference.HERE in source[0]:
        source[0] = source[0].replace(reference.HERE, reference.api())


def _page(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    context["css_files"][:] = [file for file in context["css_files"] if "thebe" not in str(file.filename)]
    body = context.get("body", "")
    for mark, files in USES.items():
        for name in files if mark in body else ():
            if name.endswith(".css"):
                app.add_css_file(name)
            else:
                app.add_js_file(name, loading_method="defer")


def _finish(app, error) -> None:
    """What the theme's templates leave to mend; and plotly's script out of its wheel, once, where a page draws."""
    if error is not None:
        return
    out, draws = Path(app.outdir), False
    for page in out.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        draws |= f"_static/{PLOTLY}" in text
        mended = mend(text)
        if mended != text:
            page.write_text(mended, encoding="utf-8")
    if draws:
        import plotly

        shutil.copy(Path(plotly.__file__).parent / "package_data" / PLOTLY, out / "_static" / PLOTLY)


def mend(text: str) -> str:
    """What the theme writes, with what a checker of HTML or of access would find in it put right.

    Names of buttons as they are read aloud contain what is seen on them (WCAG 2.5.3): the search field is named Search
    and shows Search Ctrl+K; the switch of colours hides three names in its icons. The side bar is a landmark. The title
    is on a page once: for paper the theme writes it again, and empty where a page has none.
    """
    text = re.sub(r'<div id="jb-print-docs-body".*?(?=<div id="searchbox">)', "", text, flags=re.S)
    text = text.replace(
        '<div id="pst-primary-sidebar" ', '<div id="pst-primary-sidebar" role="region" aria-label="Book" '
    )
    text = text.replace(' class="bd-main" role="main">', ' class="bd-main">')
    text = re.sub(r'(<button class="btn search-button-field[^>]*?) aria-label="Search"', r"\1", text)
    return re.sub(r'(<i class="theme-switch [^>]*?) +title="[^"]*"', r"\1", text)
