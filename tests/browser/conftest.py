"""The built book behind a server of this machine, and a headless Chromium to read it with; see test_pages.py.

reading.py says which pages there are.
"""

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest

BOOK = os.environ.get("GDLIB_BOOK", "")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def book():
    """The folder of the built book. Skips where none is named; what is named and is not there is an error."""
    if not BOOK:
        pytest.skip("no built book: GDLIB_BOOK names its folder, as `make test-pages` does")
    folder = (ROOT / BOOK).resolve()
    assert (folder / "index.html").is_file(), f"{folder} holds no book: build it first (`make test`)"
    return folder


@pytest.fixture(scope="session")
def axe():
    """The script of axe-core, which `make test-pages` fetches."""
    path = ROOT / os.environ.get("GDLIB_AXE", "_build/axe/4.14.1/package/axe.min.js")
    assert path.is_file(), f"{path} is missing: `make test-pages` fetches it"
    return path.read_text(encoding="utf-8")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="session")
def address(book):
    """http://127.0.0.1:port of the book, for the pages as a server gives them."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(book)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Chromium, driven by selenium. Both come from the system (`.ci/run` installs them); neither is downloaded."""
    from selenium import webdriver

    chromium, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    assert chromium and driver, "chromium and chromedriver are needed: apt-get install chromium chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"):
        options.add_argument(flag)
    options.add_argument("--disable-background-networking")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    started.set_page_load_timeout(120)
    started.set_script_timeout(120)
    yield started
    started.quit()
