"""Every page without scripts: what it shows does not depend on them, and nothing waits for what never comes."""

import re

import pytest
from reading import CHAPTERS, look

SEEN = """
const seen = (e) => e.checkVisibility({visibilityProperty: true}) && e.getBoundingClientRect().height > 0;
const article = document.querySelector('.bd-article');
const all = (selector) => [...article.querySelectorAll(selector)];
return {
  text: article.innerText,
  unseen: all('table, .gd-figure img, pre, figcaption, .gd-recording, .gd-stream [role=option], output')
    .filter((e) => !seen(e)).map((e) => e.outerHTML.slice(0, 120)),
  dead: all('.gd-trace :is(select, input), .gd-plotly, .plotly-graph-div').filter(seen).length,
  drafted: all('.gd-stream [data-said]').map((e) => getComputedStyle(e, '::after').content),
};
"""


@pytest.fixture
def scriptless(browser):
    look(browser, "light", 1440)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    yield browser
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_page_is_whole_without_scripts(scriptless, address, page):
    scriptless.get(f"{address}/{page}")
    seen = scriptless.execute_script(SEEN)
    assert len(seen["text"]) > 200, f"{page} is empty: {seen['text']!r}"
    assert not seen["unseen"], f"{page} hides without scripts: {seen['unseen'][:5]}"
    assert not seen["dead"], f"{page} shows {seen['dead']} controls that only scripts would move"
    assert not re.search(r"(?i)loading\s*(…|\.\.\.)|please wait", seen["text"]), f"{page} waits for a script"
    assert all(said not in ("none", "normal", '""') for said in seen["drafted"]), f"{page}: tokens without a source"
