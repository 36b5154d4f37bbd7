"""Every page on paper: printed to PDF by Chromium out of the dark theme, and read back with pdftotext.

What a reader of the screen would scroll to must be on the sheet: no word of the text is missing, nothing is wider than
the sheet, and it is dark on light. What only a hand can use stays away.
"""

import base64
import collections
import re
import shutil
import subprocess

import pytest
from reading import CHAPTERS, look

A4 = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
SHEET = 688  # px at 96 dpi: A4 less the margins of gd.css
FURNITURE = (
    ".bd-sidebar-primary, .bd-sidebar-secondary, .bd-header, .bd-header-article, .bd-footer, .prev-next-footer,"
    " .copybtn, .gd-plotly, .gd-trace-which, .gd-filter input, .gd-detail, a.headerlink,"
    " a[download][href^='data:'], button"
)
READ = """
const article = document.querySelector('.bd-article');
article.querySelectorAll('option:not(:checked)').forEach((option) => option.remove());
article.querySelectorAll('.gd-tok').forEach((token) => token.after(' ')); // else two tokens read as one word
const seen = (e) => e.checkVisibility();
const light = (colour) => {
  const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
  return a * (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255 + 1 - a; // on white
};
const all = [...article.querySelectorAll('*:not(pre *)'), ...[...article.querySelectorAll('pre *')].slice(0, 500)];
const inked = all.filter((e) => seen(e) &&
  [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()));
return {
  text: article.innerText,
  furniture: [...document.querySelectorAll(arguments[0])].filter(seen).map((e) => e.outerHTML.slice(0, 100)),
  wide: [...article.querySelectorAll('table, pre, figure, img, p, dl, form, .gd-scroll, .gd-stream')]
    .filter((e) => seen(e) && Math.max(e.getBoundingClientRect().right, e.scrollWidth > e.clientWidth + 1 &&
      getComputedStyle(e).overflowX !== 'visible' ? 1e6 : 0) > arguments[1] + 1)
    .map((e) => [e.outerHTML.slice(0, 100), Math.round(e.getBoundingClientRect().right)]),
  faint: inked.filter((e) => light(getComputedStyle(e).color) > 0.5).map((e) => e.outerHTML.slice(0, 100)),
  dark: [document.body, ...document.querySelectorAll(':has(.bd-article)'), ...all].filter((e) => seen(e) &&
    light(getComputedStyle(e).backgroundColor) < 0.5).map((e) => e.outerHTML.slice(0, 100)),
  figures: [...article.querySelectorAll('.gd-figure img')].filter((e) => !seen(e)).length,
  recordings: [...article.querySelectorAll('.gd-recording, .gd-recording-title, output')]
    .filter((e) => !seen(e)).length,
  unsaid: [...article.querySelectorAll('.gd-stream [data-said]')]
    .filter((e) => getComputedStyle(e, '::after').content.length < 4).length,
};
"""


def words(text):
    return collections.Counter(re.findall(r"\w{2,}", text.replace("\u00ad", "")))


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_page_can_be_read_on_paper(browser, address, tmp_path, page):
    assert shutil.which("pdftotext"), "pdftotext is needed: apt-get install poppler-utils"
    look(browser, "dark", SHEET, media="print")
    browser.get(f"{address}/{page}")
    try:
        seen = browser.execute_script(READ, FURNITURE, SHEET)
        sheets = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", A4)["data"])
    finally:
        look(browser, "light", 1440)
    assert not seen["furniture"], f"{page} prints what no paper needs: {seen['furniture'][:4]}"
    assert not seen["wide"], f"{page} runs over the sheet's edge: {seen['wide'][:4]}"
    assert not seen["faint"], f"{page} prints light text: {seen['faint'][:4]}"
    assert not seen["dark"], f"{page} prints dark grounds: {seen['dark'][:4]}"
    hidden = {name: seen[name] for name in ("figures", "recordings", "unsaid")}
    assert not any(hidden.values()), f"{page} leaves out on paper: {hidden}"
    (tmp_path / "page.pdf").write_bytes(sheets)
    read = ["pdftotext", "-enc", "UTF-8", str(tmp_path / "page.pdf"), "-"]
    printed = subprocess.run(read, capture_output=True, text=True, check=True).stdout
    lost = words(seen["text"]) - words(printed)
    together = re.sub(r"\s+", "", printed)  # a word that was too long for its line stands on two
    lost = {word: n for word, n in lost.items() if word not in together}
    assert not lost, f"{page} loses words on its way to paper: {lost}"
