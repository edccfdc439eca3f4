"""Hooks of the manual's build: links out of `docs/` lead to the repository, and are checked.

MkDocs checks links between pages of the manual, with their anchors. Its pages are read on GitHub as well, where a link
may lead to any file of the repository: `on_page_markdown` looks each up and has the manual lead to the repository.
`on_pre_build` checks the pages outside of `docs/` in the same way, and `on_post_build` that the built site asks for
nothing elsewhere. Links to other sites are not requested: their addresses have to be well-formed.
"""

import logging
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import markdown
from mkdocs.plugins import event_priority
from pymdownx.slugs import slugify

log = logging.getLogger("mkdocs.hooks.transom")

# Pages of the repository that are not in the manual.
OUTSIDE = ["*.md", "clients/*/*.md", "examples/**/README.md", "plugins/*.md", "wit/*.md"]
SKIPPED = {"node_modules", "target", ".venv", "vendor"}

# A link in Markdown. Code is removed before the search.
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
CODE = re.compile(r"^([ \t]*)(`{3,}|~{3,}).*?^\1\2[ \t]*$|(?<!`)`[^`\n]+`(?!`)", re.MULTILINE | re.DOTALL)

# Attributes whose URL a browser loads without a click.
LOADS = {"img": ["src", "srcset"], "script": ["src"], "iframe": ["src"], "source": ["src", "srcset"]}
STYLES = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import\s+['\"](?:https?:)?//")

# The theme loads this script from another server so that search works from files (`iframe-worker`
# 1.0.4, MIT). The manual uses a copy.
SHIM = "https://unpkg.com/iframe-worker/shim"
COPY = Path(__file__).with_name("iframe-worker.js")
COPIED = "assets/javascripts/iframe-worker.js"


class Anchors(HTMLParser):
    """The ids in a page, and the URLs that it loads."""

    def __init__(self):
        super().__init__()
        self.ids, self.loaded = set(), []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids.update(value for key in ("id", "name") if (value := values.get(key)))
        names = LOADS.get(tag, [])
        if tag == "link" and values.get("rel") not in ("canonical", "edit", "next", "prev"):
            names = ["href"]
        self.loaded += [values[name] for name in names if values.get(name)]


def anchors(page):
    """The anchors of a Markdown file, as GitHub and the manual make them."""
    toc = {"toc": {"slugify": slugify(case="lower")}}
    parser = Anchors()
    text = page.read_text(encoding="utf-8")
    extensions = ["toc", "tables", "pymdownx.superfences"]
    parser.feed(markdown.markdown(text, extensions=extensions, extension_configs=toc))
    return parser.ids


def problem(target, folder, root):
    """The fault of a link of a page in `folder`, or None."""
    parts = urlsplit(target)
    if parts.scheme:
        fine = parts.scheme == "mailto" or (parts.scheme in ("http", "https") and parts.hostname)
        return None if fine else "is not an address"
    if not parts.path:
        return None
    path = (folder / unquote(parts.path)).resolve()
    if not path.is_relative_to(root):
        return "leads out of the repository"
    if not path.exists():
        return "leads to a missing file"
    if parts.fragment and path.suffix == ".md" and unquote(parts.fragment) not in anchors(path):
        return "leads to a missing anchor"
    return None


def links(text):
    """The targets of a page's links outside of code."""
    return [found.group(2) for found in LINK.finditer(CODE.sub("", text))]


def on_pre_build(config):
    """Checks the links of pages outside of the manual."""
    root = Path(config.config_file_path).parent.resolve()
    for pattern in OUTSIDE:
        for page in sorted(root.glob(pattern)):
            if SKIPPED.intersection(page.relative_to(root).parts):
                continue
            text = page.read_text(encoding="utf-8")
            own = None
            for target in links(text):
                wrong = problem(target, page.parent, root)
                if target.startswith("#"):
                    own = own or anchors(page)
                    wrong = None if target[1:] in own else "leads to a missing anchor"
                if wrong:
                    log.warning("%s: the link '%s' %s", page.relative_to(root), target, wrong)


def on_page_markdown(text, page, config, files):
    """Replaces links to files outside of `docs/` by links to the repository."""
    root = Path(config.config_file_path).parent.resolve()
    docs = Path(config.docs_dir).resolve()
    folder = (docs / page.file.src_uri).parent

    def rewritten(found):
        before, target, after = found.groups()
        parts = urlsplit(target)
        wrong = problem(target, folder, root)
        if parts.scheme or not parts.path:
            if wrong:
                log.warning("%s: the link '%s' %s", page.file.src_uri, target, wrong)
            return found.group(0)
        path = (folder / unquote(parts.path)).resolve()
        if path.is_relative_to(docs) and path.suffix:
            return found.group(0)
        if wrong:
            log.warning("%s: the link '%s' %s", page.file.src_uri, target, wrong)
            return found.group(0)
        kind = "tree" if path.is_dir() else "blob"
        fragment = f"#{parts.fragment}" if parts.fragment else ""
        return f"{before}{config.extra['repository']}/{kind}/main/{path.relative_to(root)}{fragment}{after}"

    # Code is not changed.
    kept = []

    def aside(found):
        kept.append(found.group(0))
        return f"\0{len(kept) - 1}\0"

    text = LINK.sub(rewritten, CODE.sub(aside, text))
    return re.sub(r"\0(\d+)\0", lambda found: kept[int(found.group(1))], text)


def on_post_page(output, page, config):
    """Makes the page load the copy of the shim."""
    return output.replace(SHIM, "../" * page.url.count("/") + COPIED)


def on_post_template(output_content, template_name, config):
    """Makes the 404 page load the copy of the shim."""
    return output_content.replace(SHIM, "/" + COPIED)


# Runs after the plugin that creates the index for search from files.
@event_priority(-200)
def on_post_build(config):
    """Adds the copy of the shim, and checks that no page loads anything from another server."""
    site = Path(config.site_dir)
    shutil.copyfile(COPY, site / COPIED)
    if config.repo_url:
        log.warning("mkdocs.yml: with `repo_url` every page asks that site about the repository")
    for file in sorted(site.rglob("*")):
        name = file.relative_to(site)
        if file.suffix == ".html":
            parser = Anchors()
            parser.feed(file.read_text(encoding="utf-8"))
            for target in parser.loaded:
                if urlsplit(target).netloc:
                    log.warning("%s: loads %s from another server", name, target)
        elif file.suffix == ".css" and STYLES.search(file.read_text(encoding="utf-8")):
            log.warning("%s: loads something from another server", name)
    if not (site / "search" / "search_index.js").exists():
        log.warning("search/search_index.js is missing: search does not work without a server")
