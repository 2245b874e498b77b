# SPDX-License-Identifier: Apache-2.0
"""What MkDocs does beside its own work: the papers of the top folder become pages, links to headers lead to Doxygen's pages, and links to
other files of the repository to QK_REPOSITORY, or nowhere if that is not set."""
import os
import posixpath
import re
import xml.etree.ElementTree as xml
from pathlib import Path

from mkdocs.structure.files import File

TOP = Path(__file__).resolve().parents[2]
PAPERS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")
API = TOP / "build" / "api"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]+`", re.S | re.M)


def headers():
    """Returns Doxygen's page of each header, by the header's path in the repository."""
    tags = API / "qk.tag"
    if not tags.exists():
        return {}
    pages = {}
    for compound in xml.parse(tags).getroot().iter("compound"):
        if compound.get("kind") == "file":
            pages["include/" + compound.findtext("path").split("include/", 1)[1] + compound.findtext("name")] = "api/" + compound.findtext("filename")
    return pages


def on_files(files, config):
    for name in PAPERS:
        files.append(File.generated(config, "project/" + name, content=(TOP / name).read_text()))
    if (API / "html").is_dir():
        for path in sorted((API / "html").rglob("*")):
            if path.is_file() and path.suffix != ".md":
                files.append(File.generated(config, "api/" + path.relative_to(API / "html").as_posix(), abs_src_path=str(path)))
    files.append(File.generated(config, "qk.css", content=(TOP / "docs/site/site.css").read_text()))
    config["qk_headers"] = headers()
    return files


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_uri
    source = here.removeprefix("project/") if here.startswith("project/") else "docs/" + here

    def lead(match):
        picture, words, target = match.groups()
        path, mark, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return match[0]
        full = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        inside = full.removeprefix("docs/") if full.startswith("docs/") else "project/" + full if full in PAPERS else config["qk_headers"].get(full)
        if inside and files.get_file_from_path(inside):
            return f"{picture}[{words}]({posixpath.relpath(inside, posixpath.dirname(here) or '.')}{mark}{anchor})"
        if not (TOP / full).exists():
            return match[0]  # MkDocs says that it is broken
        repository = os.environ.get("QK_REPOSITORY")
        return f"[{words}]({repository.rstrip('/')}/{full}{mark}{anchor})" if repository else words

    spans, out, end = list(CODE.finditer(markdown)), [], 0
    for span in spans:
        out += [LINK.sub(lead, markdown[end:span.start()]), span[0]]
        end = span.end()
    return "".join(out) + LINK.sub(lead, markdown[end:])
