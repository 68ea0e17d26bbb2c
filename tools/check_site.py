"""Every link of the built site leads to a file and an anchor that exist, and no page fetches anything from elsewhere.

``python tools/check_site.py site``
"""

import functools
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("image", "href")}


class Page(HTMLParser):
    """The links of a page, and the places in it that a link can lead to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.fetched, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif value and (tag, name) == ("a", "href"):
                self.links.append(value)
            elif value and (tag, name) in FETCHED and dict(attrs).get("rel") not in ("canonical", "next", "prev"):
                self.fetched.append(value)


@functools.cache
def read_page(path):
    return Page(path.read_text(encoding="utf-8"))


def has_anchor(path, name):
    return not name or name.startswith("__") or name in read_page(path).anchors  # __: states of the theme


def find_problems(site):
    """One line for each link that leads nowhere, and for each thing fetched from elsewhere."""
    for path in sorted(site.rglob("*.html")):
        page, name = read_page(path), path.relative_to(site)
        for link in (*page.links, *page.fetched):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.fetched and parts.scheme != "data":
                    yield f"{name}: fetches {link}"
                continue
            if path.name == "404.html":  # its links are those of the site's root, wherever that is
                continue
            target = path.parent / unquote(parts.path) if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{name}: {link} leads nowhere"
            elif target.suffix == ".html" and not has_anchor(target, unquote(parts.fragment)):
                yield f"{name}: {link} has no such anchor"


def main(site):
    problems = list(find_problems(Path(site)))
    print("\n".join(problems) or f"{len(list(Path(site).rglob('*.html')))} pages, every link leads somewhere")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
