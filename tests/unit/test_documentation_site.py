"""The documentation as a site that is opened from files."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PAGE = """<!DOCTYPE html><title></title><script src="iframe-worker.js"></script><body><script>
const worker = new Worker("worker.js")
worker.addEventListener("message", event => document.title += `${event.data.answer};`)
worker.postMessage({word: "before"})
setTimeout(() => worker.postMessage({word: "after"}), 500)
</script>"""
WORKER = """addEventListener("message", event => postMessage({answer: `found ${event.data.word}`}))"""


def test_the_site_has_its_search_index_as_a_script_and_loads_nothing() -> None:
    settings = (DOCS.parent / "mkdocs.yml").read_text()
    assert re.search(r"^  - offline\b", settings, re.M)
    [script] = re.findall(r"^  polyfills: \[(iframe-worker[\w.]*)\]", settings, re.M)
    assert (DOCS / script).is_file()


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_a_page_opened_from_a_file_runs_a_worker(tmp_path: Path) -> None:
    """The search of the site is one. Messages before the script is loaded are kept."""
    shutil.copy(DOCS / "iframe-worker.js", tmp_path)
    (tmp_path / "worker.js").write_text(WORKER)
    (tmp_path / "page.html").write_text(PAGE)
    assert CHROMIUM is not None
    words = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    words += ["--virtual-time-budget=5000", "--dump-dom", (tmp_path / "page.html").as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert "<title>found before;found after;</title>" in done.stdout, done.stderr
