"""Finds things in C++ sources by their brackets."""

import re


class NotFound(Exception):
    pass


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def masked(source):
    """The source with comments and literals blanked out, every character in its place."""
    hidden = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#[^\n]*'
    return re.sub(hidden, blank, source, flags=re.S | re.M)


def closing(code, i):
    """The place of the bracket that closes the one at i."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    stack = []
    for j in range(i, len(code)):
        if code[j] in pairs:
            stack.append(pairs[code[j]])
        elif code[j] in ")]}":
            if code[j] != stack.pop():
                raise NotFound("brackets that don't match")
            if not stack:
                return j
    raise NotFound("a bracket that nothing closes")


def function_bodies(code, name, start=0, end=None):
    for match in re.compile(r"(?<![\w.:>])(?:%s)\s*\(" % name).finditer(code, start, end or len(code)):
        after = closing(code, match.end() - 1) + 1
        brace = re.compile(r"\s*(const|noexcept|HWY_ATTR|\s)*\{").match(code, after)
        if brace and re.search(r"[\w>*&]\s+$", code[:match.start()]):
            yield brace.end() - 1, closing(code, brace.end() - 1)


def bodies_within(code, i, end):
    while i < end:
        if code[i] == "{":
            last = closing(code, i)
            if re.search(r"\)\s*(const)?\s*$", code[:i]):
                yield i, last
            i = last
        i += 1


def record_bodies(code, source):
    """The lambdas given to record(), each with its op's name or None."""
    for match in re.finditer(r"(?:\.|->)record(?:_many)?\(", code):
        opened = match.end() - 1
        closed = closing(code, opened)
        literal = re.compile(r'\s*"(\w+)"').match(source, opened + 1)
        last = None
        for brace in re.finditer(r"\)\s*\{", code[opened:closed]):
            at = opened + brace.end() - 1
            if re.search(r"\]\s*\(const Grads<T>&\s*\w*\)\s*$", code[opened:at]):
                last = at
                break
        if last is not None:
            yield last, closing(code, last), literal.group(1) if literal else None


def regions(code, source, specs, patterns, ops):
    """(first character, last, patterns) of each region, in order."""
    found = []
    for spec in specs:
        kind, _, name = spec.partition(" ")
        if kind == "record":
            more = [p for p in patterns if p not in ops]
            here = [(a, b, [op] + more if op in ops else patterns)
                    for a, b, op in record_bodies(code, source)]
        elif kind == "function":
            here = [(a, b, patterns) for a, b in function_bodies(code, name)]
        elif kind == "class":
            match = re.search(r"\bclass %s\b[^;{]*\{" % name, code)
            if not match:
                raise NotFound(spec)
            here = [(a, b, patterns)
                    for a, b in bodies_within(code, match.end(), closing(code, match.end() - 1))]
        else:
            at = source.find(name)
            if at < 0:
                raise NotFound(spec)
            begin = source.rfind("\n", 0, at) + 1
            if kind == "after":
                here = [(a, b, patterns) for a, b in bodies_within(code, begin, len(code))]
            elif kind == "line":
                here = [(begin - 1, source.find("\n", at), patterns)]
            else:
                depth, end = 0, begin
                while depth >= 0:
                    depth += {"{": 1, "}": -1}.get(code[end], 0)
                    end += 1
                here = [(begin - 1, end - 1, patterns)]
        if not here:
            raise NotFound(spec)
        found += here
    return sorted(found)
