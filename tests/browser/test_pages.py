"""Every page of the built book in a headless Chromium, as a reader has it: `make test-pages`.

No console error, no request to another host, alternative texts, no finding of axe-core that is more than minor, light
and dark, wide and narrow; the trace explorer and the calculator by keyboard and by mouse; links and search. Beside it:
test_html.py (valid HTML), test_print.py (on paper), test_without_scripts.py.
"""

import json
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from reading import PAGES, heard, look

from gdlib.report import calculator

INDEX_BYTES = 300_000
WIDTHS = (1440, 390)
AXE = """
const [options, done] = arguments;
// the interface of gdlib has blocks of code by the hundred, one like the other: the first ones stand for all
[...document.querySelectorAll('.highlight')].slice(30).forEach((e) => e.remove());
axe.run(document, {resultTypes: ['violations'], ...options}).then((r) => done(r.violations));
"""
DARK = """
const done = arguments[0], began = Date.now();
(function wait() {
  const dark = document.documentElement.dataset.theme === 'dark';
  // transitions of colour have an end, and contrast is read after it
  if (dark || Date.now() - began > 5000) setTimeout(() => done(dark), 400);
  else setTimeout(wait, 20);
})();
"""


class Links(HTMLParser):
    """ids, and (tag, attribute, address) of everything that a page points to or loads."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.found = set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.found.append((tag, name, value))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_quiet_stays_at_home_and_can_be_read_by_all(browser, address, axe, page):
    heard(browser)
    for width in WIDTHS:
        look(browser, "light", width)
        browser.get(f"{address}/{page}")
        if page == "index.html":  # sends on to book/index.html
            continue
        errors, asked = heard(browser)
        assert not errors, f"{page}, {width}: {errors}"
        strangers = [url for url in asked if urlsplit(url).scheme in ("http", "https") and not url.startswith(address)]
        assert not strangers, f"{page} asks other hosts: {strangers}"
        wide = browser.execute_script("return document.documentElement.scrollWidth") - width
        assert wide <= 1, f"{page} is {wide} px wider than a window of {width}"
        browser.execute_script(axe + "; window.axe = axe")
        found = checked(browser, {})
        assert not found, f"{page}, light, {width}:\n" + "\n".join(found)
        look(browser, "dark", width)  # another theme has other colours, and nothing else
        assert browser.execute_async_script(DARK), f"{page} does not turn dark with the system"
        found = checked(browser, {"runOnly": ["color-contrast"]})
        errors, _ = heard(browser)
        assert not found + errors, f"{page}, dark, {width}:\n" + "\n".join(found + errors)
    bare = browser.execute_script(
        "return [...document.images].filter((i) => !i.alt && !i.closest('a')).map((i) => i.src)"
    )
    assert not bare, f"{page}: images without alternative text: {[src[:80] for src in bare]}"


def checked(browser, options):
    """What axe-core finds, the minor things left out: a line a finding."""
    findings = browser.execute_async_script(AXE, options)
    return [
        f"{f['id']} ({f['impact']}): {f['help']}: {[n['html'][:160] for n in f['nodes'][:3]]}"
        for f in findings
        if f["impact"] in ("moderate", "serious", "critical")
    ]


def test_links_lead_somewhere(book):
    pages = {path: Links(path) for path in map(book.joinpath, PAGES)}
    lost = []
    for path, links in pages.items():
        for tag, name, value in links.found:
            parts = urlsplit(value)
            if parts.scheme in ("http", "https") and tag != "a":
                lost.append(f"{path.name}: <{tag} {name}> of another host: {value}")
            if parts.scheme or parts.netloc:
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if not target.exists():
                lost.append(f"{path.name}: no file {value}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                lost.append(f"{path.name}: no place {value}")
    assert not lost, "\n".join(lost)


def test_the_first_page_is_light_and_scripts_go_where_they_are_used(book):
    assert (book / "book" / "index.html").stat().st_size < INDEX_BYTES
    for page in PAGES:
        text = (book / page).read_text(encoding="utf-8")
        for script, mark in (
            ("trace.js", "gd-recording"),
            ("calculator.js", "gd-calculator"),
            ("plotly", "plotly-graph"),
        ):
            assert (f'src="../_static/{script}' in text) <= (mark in text), f"{page} loads {script} and does not use it"
        assert "thebe" not in text, f"{page} still has the theme's address of another host"


def test_search_finds_forced_spans(browser, address):
    from selenium.webdriver.support.ui import WebDriverWait

    look(browser, "light", 1440)
    browser.get(f"{address}/search.html?q=forced+span")
    found = WebDriverWait(browser, 30).until(
        lambda b: b.execute_script("return [...document.querySelectorAll('#search-results li a')].map((a) => a.href)")
    )
    assert any("drafts" in link for link in found), found


def keys(browser, selector, *pressed):
    from selenium.webdriver.common.by import By

    element = browser.find_element(By.CSS_SELECTOR, selector)
    browser.execute_script("arguments[0].focus()", element)
    for key in pressed:
        browser.switch_to.active_element.send_keys(key)
    return element


def chosen(browser):
    """(number of the chosen token of the recording in sight, what its details say, the address's fragment)."""
    return browser.execute_script(
        "const s = document.querySelector('.gd-recording:not([hidden])');"
        "const t = [...s.querySelectorAll('[role=option]')];"
        "return [t.findIndex((e) => e.getAttribute('aria-selected') === 'true') + 1,"
        " s.querySelector('.gd-detail').textContent, location.hash]"
    )


@pytest.mark.parametrize("how", ["server", "file"])
def test_the_trace_explorer_by_keyboard_and_mouse(browser, book, address, how):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    look(browser, "light", 1440)
    place = f"{address}/book/trace.html" if how == "server" else f"{(book / 'book' / 'trace.html').as_uri()}"
    heard(browser)
    browser.get("about:blank")
    browser.get(f"{place}#t=2")
    number, details, _ = chosen(browser)
    assert number == 2 and "proposed by" in details and "mask" in details and "bytes forced" in details
    stream = ".gd-recording:not([hidden]) .gd-stream"
    keys(browser, stream, Keys.ARROW_RIGHT)
    assert chosen(browser)[::2] == [3, "#t=3"]
    keys(browser, stream, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert chosen(browser)[0] == 1
    forwards = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' [role=option]')].map((e) => e.dataset.forward)", stream
    )
    keys(browser, stream, Keys.ARROW_DOWN)
    assert chosen(browser)[0] == 1 + next(i for i, f in enumerate(forwards) if f != forwards[0])
    keys(browser, stream, Keys.END)
    assert chosen(browser)[0] == len(forwards)
    keys(browser, stream, Keys.HOME)
    tokens = browser.find_elements(By.CSS_SELECTOR, f"{stream} [role=option]")
    tokens[3].click()
    assert chosen(browser)[::2] == [4, "#t=4"]

    # without the tokens of a source, keys step over them, and bring them back when it is checked again
    source = tokens[1].get_attribute("data-source")
    box = browser.find_element(By.CSS_SELECTOR, f'.gd-recording:not([hidden]) input[value="{source}"]')
    keys(browser, f'.gd-recording:not([hidden]) input[value="{source}"]', Keys.SPACE)
    assert not box.is_selected() and "gd-dim" in tokens[1].get_attribute("class")
    keys(browser, stream, Keys.HOME, Keys.ARROW_RIGHT)
    seen = chosen(browser)[0] - 1
    assert tokens[seen].get_attribute("data-source") != source
    box.click()
    assert box.is_selected() and "gd-dim" not in tokens[1].get_attribute("class")

    names = browser.execute_script("return [...document.querySelectorAll('.gd-recording')].map((e) => e.dataset.name)")
    if len(names) > 1:
        browser.execute_script("location.hash = arguments[0]", f"#trace={names[1]}&t=2")
        assert (
            browser.execute_async_script(
                "const done = arguments[0];"
                "setTimeout(() => done(document.querySelector('.gd-recording:not([hidden])').dataset.name), 200)"
            )
            == names[1]
        )
        assert chosen(browser)[0] == 2
    assert not heard(browser)[0]


@pytest.mark.parametrize("how", ["server", "file"])
def test_the_calculator_by_keyboard_and_mouse(browser, book, address, how):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    look(browser, "light", 1440)
    browser.get(f"{address}/book/calculator.html" if how == "server" else (book / "book" / "calculator.html").as_uri())
    fit = json.loads(browser.execute_script("return document.querySelector('.gd-calculator script').textContent"))

    def answers():
        read = "return Object.fromEntries([...document.querySelectorAll('output')].map((o) => [o.name, o.value]))"
        return browser.execute_script(read), browser.find_element(By.CSS_SELECTOR, ".gd-beyond").text

    def told(**changes):
        found = calculator.estimate(fit, {**calculator.beginning(fit), **changes})
        return {
            "mask_us": calculator.text(found["mask_us"], 0, " µs"),
            "mask_share": calculator.text([v if v is None else 100 * v for v in found["mask_share"]], 2, "%"),
            "tokens": calculator.text(found["tokens"], 2),
            "gain": calculator.text(found["gain"], 2),
        }

    assert answers()[0] == told()
    keys(browser, "input[name=vocabulary]", Keys.CONTROL + "a", "50000")
    keys(browser, "input[name=forward_ms]", Keys.CONTROL + "a", "2.5")
    keys(browser, "input[name=acceptance]", Keys.ARROW_DOWN)
    changed = {"vocabulary": 50_000, "forward_ms": 2.5, "acceptance": 0.94}
    assert answers()[0] == told(**changed)
    kind = list(fit["mask"]["kinds"])[-1]
    Select(browser.find_element(By.NAME, "kind")).select_by_value(kind)
    assert answers()[0] == told(**changed, kind=kind)
    keys(browser, "input[name=batch]", Keys.CONTROL + "a", "200")
    assert "the batch" in answers()[1] and answers()[0] == told(**changed, kind=kind, batch=200)
    keys(browser, "input[name=batch]", Keys.CONTROL + "a", "0")
    values, message = answers()
    assert set(values.values()) == {"–"} and "texts in a batch: 1 to 256" in message


def test_who_comes_back_to_a_page_finds_answers_to_what_its_fields_say(browser, book, address):
    from selenium.webdriver.common.keys import Keys

    look(browser, "light", 1440)
    browser.get(f"{address}/book/calculator.html")
    fit = json.loads(browser.execute_script("return document.querySelector('.gd-calculator script').textContent"))
    keys(browser, "input[name=batch]", Keys.CONTROL + "a", "32")
    browser.get(f"{address}/book/glossary.html")
    browser.back()
    batch, answer = browser.execute_async_script(
        "const done = arguments[0]; const form = document.querySelector('.gd-calculator');"
        "setTimeout(() => done([form.elements.batch.value, form.elements.mask_us.value]), 300)"
    )
    found = calculator.estimate(fit, {**calculator.beginning(fit), "batch": int(batch)})
    assert answer == calculator.text(found["mask_us"], 0, " µs")

    browser.get(f"{address}/book/trace.html")
    keys(browser, ".gd-recording:not([hidden]) input:checked", Keys.SPACE)
    browser.get(f"{address}/book/glossary.html")
    browser.back()
    wrong = browser.execute_async_script(
        "const done = arguments[0]; setTimeout(() => {"
        " const off = new Set([...document.querySelectorAll('.gd-recording:not([hidden]) input')]"
        "   .filter((box) => !box.checked).map((box) => box.value));"
        " done([...document.querySelectorAll('.gd-recording:not([hidden]) [role=option]')]"
        "   .filter((token) => off.has(token.dataset.source) !== token.classList.contains('gd-dim')).length); }, 300)"
    )
    assert wrong == 0
