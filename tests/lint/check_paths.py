# SPDX-License-Identifier: Apache-2.0
"""Nothing in the tree points at one machine: no personal paths, no hosts but those listed here."""

import re

import lintlib

# Hosts a file may name. A host without a dot (localhost, a compose service) is always allowed.
HOSTS = {
    "127.0.0.1", "0.0.0.0", "arxiv.org", "example.com", "github.com", "json.schemastore.org",
    "onnx.ai", "perfetto.dev", "ui.perfetto.dev", "prometheus.io", "schema.management.azure.com",
    "spdx.org", "systemd.io", "www.apache.org", "www.freedesktop.org", "www.kernel.org",
    "www.mindspore.cn", "www.w3.org",
}
_PATH = re.compile(r"(?:^|[^A-Za-z0-9_.~$}])(/(?:work|home|root|Users|farm)/[\w.-]+)")
_OUTSIDE = re.compile(r"\.\./(?:shared|work)\b")
_URL = re.compile(r"\b(?:https?|git|ssh|ftp)://(?:[^/\s@\"'<>]*@)?(\[?[\w.:-]*[\w\]])")
_INDEX = re.compile(r"--(?:extra-)?index-url\b|--registry[= ]|\bregistry-mirrors?\b")
_SKIPPED = ("tests/data/", "LICENSE", "proto/google/")


def _host(text):
    return re.sub(r":\d+$", "", text).lower()


def judge(line):
    """What is wrong with one line of text."""
    problems = [f"names the path {m.group(1)}" for m in _PATH.finditer(line)]
    problems += [f"names {m.group(0)}, outside the repository" for m in _OUTSIDE.finditer(line)]
    problems += [f"names a package index ({m.group(0).strip()})" for m in _INDEX.finditer(line)]
    for match in _URL.finditer(line):
        host = _host(match.group(1))
        if "." in host and host not in HOSTS:
            problems.append(f"names the host {host}; if it is meant, list it in check_paths.py")
    return problems


def check(root):
    problems = []
    for path in lintlib.all_files(root):
        if path.startswith(_SKIPPED):
            continue
        text = lintlib.read(root, path)
        if "\0" in text:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            problems += [f"{path}:{number}: {p}" for p in judge(line)]
    return problems


if __name__ == "__main__":
    lintlib.run(check)
