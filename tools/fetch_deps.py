#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetches the pinned sources of third_party/deps.txt into .cache/deps/<name>/.

The links come from the index that pip itself is configured for (its config files, environment, proxy, certificates
and credentials), through pip's own session: nothing about the network is written in this repository. `pip download`
cannot do this job, because for an sdist it would also run that package's build backend.

Each file is checked against its sha256 before anything in it is read, and a dependency appears under its final name
only when complete. A second run with the same pins does nothing and needs neither pip nor a network.
"""

import argparse
import fnmatch
import hashlib
import os
import posixpath
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parent.parent
STAMP = ".stamp"


class Pin(NamedTuple):
    name: str
    project: str
    file: str
    sha256: str
    picks: tuple  # of (folder in the archive, globs)

    def stamp(self):
        return (
            " ".join([self.file, self.sha256, *(f"{folder}:{','.join(globs)}" for folder, globs in self.picks)]) + "\n"
        )


class FetchError(Exception):
    pass


def read_pins(path):
    pins = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) < 5 or len(words[3]) != 64 or not all(":" in w for w in words[4:]):
            raise FetchError(f"{path}:{number}: want `name project file sha256 folder:glob[,glob...] ...`")
        picks = tuple(
            (folder.rstrip("/"), tuple(globs.split(","))) for folder, globs in (w.split(":", 1) for w in words[4:])
        )
        pins.append(Pin(*words[:4], picks))
    return pins


def is_current(pin, deps):
    stamp = deps / pin.name / STAMP
    return stamp.is_file() and stamp.read_text() == pin.stamp()


class Index:
    """pip's own view of the package index. pip calls these parts internal, so every use of them is in this class."""

    def __init__(self):
        try:
            from pip._internal.commands import create_command
            from pip._internal.index.collector import parse_links
        except ImportError as error:
            raise FetchError(f"this Python has no usable pip ({error}); install python3-venv or python3-pip") from error
        self._parse_links = parse_links
        # Wheels of other platforms are wanted too (a header is a header), so links are listed raw, past pip's tag
        # filter.
        self._command = create_command("download")
        self._options, _ = self._command.parse_args(["--quiet", "unused"])

    def download(self, pin, target):
        with self._command.main_context():
            session = self._command.get_default_session(self._options)
            finder = self._command._build_package_finder(options=self._options, session=session)
            link = self._find(finder, pin)
            response = session.get(link.url.split("#", 1)[0], headers={"Accept-Encoding": "identity"}, stream=True)
            response.raise_for_status()
            digest = hashlib.sha256()
            with open(target, "wb") as out:
                for chunk in response.iter_content(1 << 18):
                    digest.update(chunk)
                    out.write(chunk)
        if digest.hexdigest() != pin.sha256:
            raise FetchError(f"{pin.file}: sha256 is {digest.hexdigest()}, the pin says {pin.sha256}")

    def _find(self, finder, pin):
        collector = finder._link_collector

        def links_of_page(page):
            response = collector.fetch_response(page)
            return list(self._parse_links(response)) if response is not None else []

        sources = collector.collect_sources(project_name=pin.project, candidates_from_page=links_of_page)
        for source in [*sources.find_links, *sources.index_urls]:
            if source is None:
                continue
            # file_links() of an index page is the page itself: a name comparison skips it.
            for link in [*source.file_links(), *source.page_candidates()]:
                if link.filename == pin.file:
                    return link
        raise FetchError(
            f"pip's index offers no file {pin.file} of {pin.project} (no network, or another index is configured?)"
        )


def members(archive):
    """(name, opener) of every regular file, for tar and zip alike."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as z:
            for info in z.infolist():
                if not info.is_dir():
                    yield info.filename, lambda info=info: z.open(info)
    else:
        with tarfile.open(archive, "r|*") as t:  # streamed: one pass over a compressed file
            for info in t:
                if info.isreg():
                    yield info.name, lambda info=info: t.extractfile(info)


def place_of(name, picks):
    """Where an archive member goes, relative to the dependency's folder; None when it is not wanted."""
    for folder, globs in picks:
        if not name.startswith(folder + "/"):
            continue
        relative = name[len(folder) + 1 :]
        if relative != posixpath.normpath(relative) or relative.startswith(("../", "/")):
            continue  # a hostile path; the hash makes this unlikely, not impossible to mistype in a pin
        if any(fnmatch.fnmatchcase(relative, g[1:]) for g in globs if g.startswith("!")):
            continue
        if any(fnmatch.fnmatchcase(relative, g) for g in globs if not g.startswith("!")):
            return relative
    return None


def extract(archive, pin, target):
    used = set()
    for name, open_member in members(archive):
        relative = place_of(name, pin.picks)
        if relative is None:
            continue
        out = target / relative
        out.parent.mkdir(parents=True, exist_ok=True)
        with open_member() as source, open(out, "wb") as sink:
            shutil.copyfileobj(source, sink)
        used.update(
            (folder, g)
            for folder, globs in pin.picks
            for g in globs
            if name.startswith(folder + "/") and fnmatch.fnmatchcase(relative, g)
        )
    unused = [
        f"{folder}:{g}"
        for folder, globs in pin.picks
        for g in globs
        if not g.startswith("!") and (folder, g) not in used
    ]
    if unused:
        raise FetchError(f"{pin.file}: nothing in the archive matches {', '.join(unused)}")


def install(pin, deps, index):
    deps.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(
        prefix=f".{pin.name}-", dir=deps
    ) as scratch:  # same file system, so that rename is atomic
        archive, tree, old = Path(scratch, "archive"), Path(scratch, "tree"), Path(scratch, "old")
        index.download(pin, archive)
        megabytes = archive.stat().st_size / 1e6
        tree.mkdir()
        extract(archive, pin, tree)
        (tree / STAMP).write_text(pin.stamp())
        if (deps / pin.name).exists():
            os.rename(deps / pin.name, old)
        os.rename(tree, deps / pin.name)
    print(f"fetched {pin.name} from {pin.file} ({megabytes:.1f} MB) in {time.monotonic() - began:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pins", type=Path, default=REPO / "third_party" / "deps.txt")
    parser.add_argument("--deps", type=Path, default=REPO / ".cache" / "deps", help="where the dependencies go")
    parser.add_argument("--check", action="store_true", help="fetch nothing; exit 1 and name what is missing or stale")
    options = parser.parse_args()
    try:
        missing = [pin for pin in read_pins(options.pins) if not is_current(pin, options.deps)]
        if options.check:
            if missing:
                print("missing or stale: " + ", ".join(pin.name for pin in missing), file=sys.stderr)
            return 1 if missing else 0
        index = Index() if missing else None
        for pin in missing:
            install(pin, options.deps, index)
    except FetchError as error:
        print(f"fetch_deps: {error}", file=sys.stderr)
        return 1
    except Exception as error:  # pip's network layer raises many kinds; the user needs one sentence, not a stack
        if os.environ.get("TESSERA_DEBUG"):
            raise
        print(f"fetch_deps: {type(error).__name__}: {error} (TESSERA_DEBUG=1 shows the stack)", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
