"""Hooks of MkDocs: pages of the site that are files outside docs/, and the design decisions in the navigation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
#: file of the checkout -> its address in the site
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "LICENSE.txt",
    "tests/golden/slots.md": "golden/slots.md",
}
OUTSIDE |= {f"tests/golden/ptx/{p.name}": f"golden/{p.name}" for p in (ROOT / "tests" / "golden" / "ptx").glob("*.ptx")}
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)]*)?(\))")


def on_config(config: Any) -> Any:
    """Adds every design decision to the navigation."""
    decisions = sorted((ROOT / "docs" / "adr").glob("*.md"), key=lambda p: (p.name != "README.md", p.name))
    config["nav"].append({"Design decisions": [f"adr/{p.name}" for p in decisions]})
    return config


def on_files(files: Files, config: Any) -> Files:
    for path, address in OUTSIDE.items():
        files.append(File.generated(config, address, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links of a file of the checkout as links of the site."""
    address = page.file.src_uri
    origin = next((path for path, other in OUTSIDE.items() if other == address), f"docs/{address}")

    def site_link(match: re.Match[str]) -> str:
        target = (ROOT / origin).parent / match[2]
        try:
            path = target.resolve().relative_to(ROOT).as_posix()
        except ValueError:
            return match[0]
        inside = OUTSIDE.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if inside is None:
            return match[0]
        up = "../" * address.count("/")
        return f"{match[1]}{up}{inside}{match[3] or ''}{match[4]}"

    return LINK.sub(site_link, markdown)
