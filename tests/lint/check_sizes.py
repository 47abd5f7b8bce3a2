# SPDX-License-Identifier: Apache-2.0
"""No file over 800 lines, no function over 100. (The habit is 500 and 70; this is where it ends.)

Functions are found by counting braces: a block opened at namespace or class scope by something with
a parameter list is a function, with whatever lies in it. That includes TEST_CASE bodies.
"""

import re

import lintlib

FILE_LINES = 800
FUNCTION_LINES = 100
_SOURCES = lintlib.CPP + (".py", ".sh", ".proto", ".cmake", ".pml", ".js", ".mjs", ".css", ".html")
_ACCESS = re.compile(r"\b(?:public|private|protected)\s*:(?!:)")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_TEMPLATE = re.compile(r"\btemplate\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>")
_ATTRIBUTE = re.compile(r"\balignas\s*\([^()]*\)|\[\[[^\[\]]*\]\]")
_SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b|\bextern\s*\"")
_INITIALISER = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:)[^;]*[\w>]\s*$")


def _opens(head):
    """What `{` after `head` (all text since the last ; { or }) opens."""
    head = _ATTRIBUTE.sub(" ", _TEMPLATE.sub(" ", head)).strip()
    scope = _SCOPE.search(head)
    if scope and "(" not in head[:scope.start()] and not re.search(r"\)\s*[\w\s&]*$", head):
        return "scope"
    if not head or head.endswith("=") or "(" not in head:
        return "value"
    if _INITIALISER.search(head) and not head.endswith(")"):
        return "initialiser"  # Foo() : a_{1}, ...: the body is still to come
    return "function"


def functions(code):
    """(first line, lines, head) of each outermost function; ValueError if braces do not pair."""
    code = _DIRECTIVE.sub(lambda m: "\n" * m.group(0).count("\n"), lintlib.blank(code))
    code = _ACCESS.sub(lambda m: "\n" * m.group(0).count("\n"), code)
    found, stack, start, line = [], [], 0, 1
    head_line, inside = None, 0  # `inside`: how many open braces belong to a function or a value
    for at, char in enumerate(code):
        if char == "\n":
            line += 1
            continue
        if not inside and head_line is None and not char.isspace() and char not in "{};":
            head_line = line
        if char == "{":
            kind = "nested" if inside else _opens(code[start:at])
            stack.append((kind, head_line or line, code[start:at]))
            inside += kind != "scope"
        elif char == "}":
            if not stack:
                raise ValueError(f"line {line}: a brace closes that nothing opened")
            kind, first, head = stack.pop()
            inside -= kind != "scope"
            if kind == "function":
                found.append((first, line - first + 1, " ".join(head.split())))
            if kind == "initialiser":
                continue  # the head goes on
        if char in "{};" and not inside:
            start, head_line = at + 1, None
    if stack:
        raise ValueError(f"the brace of line {stack[-1][1]} is never closed")
    return found


def check(root):
    problems = []
    for path in lintlib.all_files(root):
        if not path.endswith(_SOURCES) or path.startswith("tests/data/"):
            continue
        text = lintlib.read(root, path)
        lines = len(text.splitlines())
        if lines > FILE_LINES:
            problems.append(f"{path}:1: {lines} lines, at most {FILE_LINES}")
        if not path.endswith(lintlib.CPP):
            continue
        try:
            for first, length, head in functions(text):
                if length > FUNCTION_LINES:
                    problems.append(f"{path}:{first}: a function of {length} lines, at most "
                                    f"{FUNCTION_LINES}: {head[:60]}")
        except ValueError as error:
            problems.append(f"{path}:1: {error}")
    return problems


if __name__ == "__main__":
    lintlib.run(check)
