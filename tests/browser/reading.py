"""What the tests of the pages share: which pages there are, how a reader looks at one, and what was heard meanwhile."""

import json
import os
from pathlib import Path

BOOK = Path(__file__).parents[2] / os.environ.get("GDLIB_BOOK", "no-book")
PAGES = sorted(str(p.relative_to(BOOK)) for p in BOOK.rglob("*.html") if not {"_static", "_sources"} & set(p.parts))
CHAPTERS = [page for page in PAGES if page.startswith("book/")]


def look(browser, theme, width, media=""):
    """Read on in this theme ("light", "dark"), at this width in pixels, on the screen or (media="print") on paper."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": media, "features": [{"name": "prefers-color-scheme", "value": theme}]},
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 600},
    )


def heard(browser):
    """(messages of the console that are errors, addresses that were asked for) since the last call."""
    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    asked = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    return [error for error in errors if "favicon.ico" not in error], asked
