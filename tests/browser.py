"""A real browser without a window: what a page becomes in it, and what it complains of."""

import os
import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser():
    """The browser, or the reason to skip; where one is required its absence is a failure."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        reason = f"no browser is installed ({', '.join(NAMES)})"
        if os.environ.get("LEARNPOOL_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def render(path, profile, *, width=1200, dark=False):
    """The page's DOM after it was laid out, and the lines of its console."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    options += [f"--user-data-dir={profile}", f"--window-size={width},2000", "--virtual-time-budget=2000"]
    options += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command = [find_browser(), *options, "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
