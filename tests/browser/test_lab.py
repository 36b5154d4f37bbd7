"""The tour in a real JupyterLab: opened, run from the menu, worked by keyboard. `make test-pages` runs it, too.

What the widgets answer is tested in tests/test_tour.py; here it is that they are drawn at all, that keys reach them,
that nothing complains on the console, and that no other host is asked.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
TOKEN = "tour"
PROMPTS = "return [...document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')].map(e => e.innerText.trim())"
STATUS = "return document.querySelector('.jp-StatusBar-Widget')?.innerText || ''"
SAID = "return document.querySelector('.jupyter-widgets .gd-tour [role=status]')?.innerText || ''"
WHERE = "return document.querySelector('.jupyter-widgets .gd-tour .facts caption')?.innerText || ''"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab of our own with a copy of the tour in it."""
    if not os.environ.get("GDLIB_BOOK"):
        pytest.skip("JupyterLab is opened by `make test-pages`, with the book")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("no Chromium: apt-get install chromium chromium-driver")
    folder = tmp_path_factory.mktemp("lab")
    shutil.copy(ROOT / "notebooks" / "tour.ipynb", folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--IdentityProvider.token={TOKEN}"]
    command += ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", f"--ServerApp.root_dir={folder}"]
    with (folder / "log.txt").open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=os.environ | own | {"GDLIB_ROOT": str(ROOT)}, stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(f"{address}/api/status?token={TOKEN}") or server.poll() is not None, "JupyterLab")
        assert server.poll() is None, (folder / "log.txt").read_text()[-2000:]
        yield address
    finally:
        for session in json.loads(asked_of(f"{address}/api/sessions?token={TOKEN}") or "[]"):
            asked_of(f"{address}/api/sessions/{session['id']}?token={TOKEN}", "DELETE")
        server.terminate()
        server.wait(60)


def asked_of(url, method="GET"):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
            return answer.read()
    except (urllib.error.URLError, OSError):
        return b""


def answers(url):
    return bool(asked_of(url))


def until(holds, what, seconds=300):
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, f"{what}: not there after {seconds} s"
        time.sleep(0.25)
    return found


def menu(browser, first, item):
    from selenium.webdriver.common.by import By

    browser.find_element(
        By.XPATH, f"//div[contains(@class, 'lm-MenuBar-itemLabel') and normalize-space()='{first}']"
    ).click()
    path = f"//li[contains(@class, 'lm-Menu-item')]//div[normalize-space()='{item}']"
    until(lambda: browser.find_elements(By.XPATH, path), f"menu {first}, {item}")[0].click()


def test_the_tour_runs_in_jupyterlab_and_answers_to_keys(lab, browser):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    size = {"width": 1280, "height": 2000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(f"{lab}/lab/tree/tour.ipynb?token={TOKEN}&reset")
    until(lambda: "Idle" in browser.execute_script(STATUS), "the kernel")
    notebook = json.loads((ROOT / "notebooks" / "tour.ipynb").read_text(encoding="utf-8"))
    count = sum(cell["cell_type"] == "code" for cell in notebook["cells"])
    menu(browser, "Run", "Run All Cells")
    until(lambda: f"[{count}]:" in browser.execute_script(PROMPTS), "the last cell")
    assert not browser.find_elements(By.CSS_SELECTOR, "[data-mime-type='application/vnd.jupyter.error']")

    until(lambda: "behind byte" in browser.execute_script(WHERE), "the first place")
    assert "the grammar forces" in browser.execute_script(SAID)
    before = browser.execute_script(WHERE)
    handle = browser.find_elements(By.CSS_SELECTOR, ".jupyter-widgets .noUi-handle")[0]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", handle)
    handle.send_keys(Keys.ARROW_RIGHT)
    until(lambda: browser.execute_script(WHERE) not in ("", before), "the next place")

    schema, _, text = browser.find_elements(By.CSS_SELECTOR, ".jupyter-widgets textarea")[:3]
    for area, typed, said in (
        (schema, '{"enum": [', "✗ schema, line 1"),
        (schema, '{"enum": ["new", "next"]}', "leaves the grammar at byte 0"),
        (text, '"next"', "a whole sentence of the grammar"),
    ):
        area.send_keys(Keys.CONTROL, "a")
        area.send_keys(typed)
        until(lambda said=said: said in browser.execute_script(SAID), f"{typed} answered by {said!r}", 60)

    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not [error for error in errors if "favicon" not in error]
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert not [url for url in urls if urlsplit(url).scheme in ("http", "https") and not url.startswith(lab)]
    browser.get("about:blank")
