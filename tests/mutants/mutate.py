"""Writes copies of sources in which each statement of a backward can be made a wrong one at run time."""

import re
from dataclasses import dataclass, field

from source import NotFound, blank, closing, masked, regions

PER_SITE = 8  # mutation numbers per place; see mutation.h
PER_FILE = 1024  # places per file

# For each kind of place: what its mutants are, by offset.
CHANGES = {
    "drop": ["statement dropped"],
    "assign": ["added instead of set"],
    "add_assign": ["subtracted instead of added", "set instead of added"],
    "sub_assign": ["added instead of subtracted", "set instead of subtracted"],
    "value": ["opposite sign", "zero"],
    "flip": ["opposite answer"],
    "beta": ["set and add exchanged"],
    "index": ["index 0"],
    "either": ["{other} instead"],
    "minus": ["minus dropped"],
    "*": ["opposite sign", "right factor dropped", "left factor dropped"],
    "/": ["opposite sign", "divisor dropped", "multiplied instead of divided"],
    "+": ["subtracted instead of added", "right term dropped", "left term dropped"],
    "-": ["added instead of subtracted", "right term dropped", "operands exchanged"],
    "Mul": ["opposite sign", "second factor dropped", "first factor dropped"],
    "Div": ["opposite sign", "divisor dropped", "multiplied instead of divided"],
    "Add": ["subtracted instead of added", "second term dropped", "first term dropped"],
    "Sub": ["added instead of subtracted", "second term dropped", "operands exchanged"],
    "MulAdd": ["product's sign", "product dropped", "sum dropped", "second factor dropped",
               "first factor dropped"],
    "NegMulAdd": ["product's sign", "product dropped", "sum dropped", "second factor dropped",
                  "first factor dropped"],
    "Neg": ["minus dropped"],
    "IfThenElseZero": ["mask dropped"],
    "IfThenElse": ["condition always true", "condition always false"],
}
OPPOSITES = {"Trans::kNo": "Trans::kYes", "Trans::kYes": "Trans::kNo", "Store::kSet": "Store::kAdd",
             "Store::kAdd": "Store::kSet", "flip(trans_a)": "trans_a", "flip(trans_b)": "trans_b"}
# Calls whose neighbouring arguments are not exchanged: symmetric, or arithmetic that has mutants of its own.
SYMMETRIC = re.compile(r"^(hn::\w+|std::(min|max|fill_n|fill|copy_n)|mul|add|internal::chain|sizeof|decltype|"
                       r"static_cast.*|(Load|Store)(Some|Partial)(<.*>)?)$")
VECTOR = re.compile(r"\bhn::(Mul|Div|Add|Sub|MulAdd|NegMulAdd|Neg|IfThenElseZero|IfThenElse)(?=\()")
# Whether a gradient is set or added to.
ADDS = re.compile(r"\w+(?:\.|->)(?:fresh|add|add_[qkv])\b(?!\s*[(=])|"
                  r"(?<![.\w])(?<!bool )accumulate\b(?!\s*[(=])")


@dataclass
class Site:
    kind: str
    offset: int  # in the source
    text: str  # the mutated expression, for people
    other: str = ""
    number: int = 0
    patterns: list = field(default_factory=list)
    line: int = 0


class Mutator:
    """One file. `left_out` are lines on which nothing is mutated."""

    def __init__(self, path, source, specs, patterns, ops, skip, base, left_out=()):
        self.path, self.source, self.code, self.skip = path, source, masked(source), skip
        self.kernel = "HWY_NAMESPACE {" in source
        self.base, self.left_out = base, set(left_out)
        self.sites, self.edits = [], []
        for first, last, self.patterns in regions(self.code, source, specs, patterns, ops):
            self.returns_nothing = re.search(r"\bvoid\s+\w+\s*\([^{};]*\)\s*(?:const)?\s*$", self.code[:first])
            self.block(first + 1, last)
        if not self.sites:
            raise NotFound("anything to mutate")

    def line(self, i):
        return self.source.count("\n", 0, i) + 1

    def site(self, kind, begin, end, other=""):
        """The number of a new place, or None on lines left out."""
        line = self.line(begin)
        if line in self.left_out:
            return None
        if len(self.sites) >= PER_FILE:
            raise NotFound("room for so many places to mutate")
        text = " ".join(self.source[begin:end].split())
        number = self.base + len(self.sites) * PER_SITE
        self.sites.append(Site(kind, begin, text, other, number, self.patterns, line))
        return number

    def insert(self, at, text, rank):
        self.edits.append((at, rank, text, 0))

    def wrap(self, kind, begin, end, name=None, other="", tail=""):
        """begin..end becomes name<N>(begin..end tail)."""
        number = self.site(kind, begin, end, other)
        if number is None:
            return
        width = end - begin
        self.insert(begin, "%s<%d>(" % (name or "mutation::" + kind, number), (1, -width, number))
        self.insert(end, tail + ")", (0, width, -number))

    # Statements.

    def block(self, i, end):
        while i < end:
            i = self.statement(i, end)

    def statement(self, i, end):
        """Mutates the statement at i; returns where the next one begins."""
        code = self.code
        while i < end and (code[i].isspace() or code[i] == ";"):
            i += 1
        if i >= end:
            return end
        if code[i] == "{":
            last = closing(code, i)
            self.block(i + 1, last)
            return last + 1
        word = re.compile(r"[A-Za-z_]\w*").match(code, i)
        word = word.group(0) if word else ""
        if word == "HWY_UNROLL":
            return self.statement(closing(code, code.index("(", i)) + 1, end)
        if word in ("for", "while", "switch"):
            return self.statement(closing(code, code.index("(", i)) + 1, end)
        if word == "if":
            opened = code.index("(", i)
            closed = closing(code, opened)
            condition = code[opened + 1:closed]
            if re.compile(r"\s*fail\(").match(code, closed + 1):
                return code.index(";", closed) + 1
            if not code[i + 2:opened].strip() and not re.search(r"[^=!<>]=[^=]", condition):
                self.wrap("flip", opened + 1, closed)
            i = self.statement(closed + 1, end)
            other = re.compile(r"\s*else\b").match(code, i)
            return self.statement(other.end(), end) if other else i
        if word in ("case", "default", "public", "private"):
            return code.index(":", i) + 1
        j = i
        while j < end and code[j] != ";":
            j = closing(code, j) + 1 if code[j] in "([{" else j + 1
        self.simple_statement(i, j, word)
        return j + 1

    def simple_statement(self, i, end, word):
        text = self.code[i:end]
        if text.startswith(self.skip) or word in ("break", "continue", "do", "else"):
            return
        inner = self.lambdas(i, end)
        if word == "return" and self.returns_nothing and text != word:
            number = self.site("drop", i, end)
            if number is not None:
                self.insert(i, "{ if (mutation::on<%d>()) return; " % number, (1, -(end - i) - 2))
                self.insert(end + 1, " }", (0, end - i + 2))
            self.expression(i + len(word), end, inner)
            return
        if word == "return":
            begin = i + len("return")
            while begin < end and self.code[begin].isspace():
                begin += 1
            if begin < end:
                self.initializer(begin, end, inner)
                self.expression(begin, end, inner)
            return
        declared = re.match(r"(?:const\s+)?([\w:]+)(?:<[^=;()]*>)?(?:(\*|&)\s+|\s+\*|\s+)(?:const\s+)?"
                            r"(?:\w+|\[[^\]]*\])", text)
        if declared:
            if declared.group(2) == "&" or "[" in declared.group(0):
                if "=" in text:
                    self.expression(i + text.index("=") + 1, end, inner)
                return
            begin = i + declared.end()
            if self.code[begin] == "[":
                return
            equals = re.compile(r"\s*=\s*").match(self.code, begin)
            if equals:
                begin = equals.end()
                if declared.group(1) in ("size_t", "int", "bool"):
                    if declared.group(1) == "size_t" and not re.search(r"Lanes\(|^0$", self.code[begin:end]) \
                            and not inner and "," not in self.flat(begin, end, inner):
                        self.wrap("index", begin, end)
                    self.calls(begin, self.hidden(begin, end, inner))
                    return
                if "," not in self.flat(begin, end, inner) and declared.group(2) != "*":
                    self.initializer(begin, end, inner)
            self.expression(begin, end, inner)
            return
        number = self.site("drop", i, end)
        if number is not None:
            self.insert(i, "{ if (!mutation::on<%d>()) { " % number, (1, -(end - i) - 2))
            self.insert(end + 1, " } }", (0, end - i + 2))
        assign = re.match(r"([\w.\->\[\]()*:, ]*?(?:\[[^=]*\])?)\s+(=|\+=|-=)\s+", text)
        if assign:
            begin = i + assign.end()
            kind = {"=": "assign", "+=": "add_assign", "-=": "sub_assign"}[assign.group(2)]
            if self.code[begin] != "{" and "=" not in text[assign.end():]:
                number = self.site(kind, i, end)
                if number is not None:
                    width = end - i
                    self.insert(i, "mutation::%s<%d>(" % (kind, number), (1, -width - 1))
                    self.edits.append((i + assign.start(2) - 1, (0, 0), ",", len(assign.group(2)) + 1))
                    self.insert(end, ")", (0, width + 1))
            self.initializer(begin, end, inner)
        self.expression(i, end, inner)

    def lambdas(self, i, end):
        """Mutates the bodies of lambdas in a statement; returns where they lie."""
        found = []
        for brace in re.finditer(r"\]\s*(?:\([^;{}]*?\))?\s*(?:HWY_ATTR)?\s*\{", self.code[i:end]):
            at = i + brace.end() - 1
            before = self.code[i:i + brace.start() + 1]
            if re.search(r"(?:^|[=(,\s])\[[&=\w\s,]*\]$", before) and not any(a < at < b for a, b in found):
                last = closing(self.code, at)
                found.append((at, last))
        returns_nothing, self.returns_nothing = self.returns_nothing, None
        for a, b in found:
            self.block(a + 1, b)
        self.returns_nothing = returns_nothing
        return found

    # Expressions.

    def flat(self, begin, end, inner):
        """The code with everything in brackets blanked out."""
        text = self.hidden(begin, end, inner)
        while True:
            shorter = re.sub(r"[(\[{][^()\[\]{}]*[)\]}]", blank, text)
            if shorter == text:
                return text
            text = shorter

    def hidden(self, begin, end, inner):
        text = list(self.code[begin:end])
        for a, b in inner:
            for j in range(max(a, begin), min(b, end)):
                if text[j - begin] != "\n":
                    text[j - begin] = " "
        return "".join(text)

    def initializer(self, begin, end, inner):
        """The whole value of a declaration, an assignment or a return."""
        text = self.code[begin:end]
        if inner or text[:1] in ("{", "[", ""):
            return
        if re.match(r"hn::(Mul|MulAdd|NegMulAdd|Add|Sub|Neg|Div|Zero)\b", text):  # has mutants of its own
            return
        if re.match(r"Tensor<T>(\(|::zeros)", text):  # undefined or zero: no sign to change
            return
        if re.match(r"[\w:<>]+\{", text) or re.match(r"(true|false|nullptr|\d+)$", text):
            return
        self.wrap("value", begin, end, "mutation_hn::value" if self.kernel else None)

    def expression(self, begin, end, inner):
        text = self.hidden(begin, end, inner)
        for match in VECTOR.finditer(text):
            at, kind = begin + match.start(), match.group(1)
            number = self.site(kind, at, closing(self.code, begin + match.end()) + 1)
            if number is not None:
                self.edits.append((at, (1, 0), "mutation_hn::%s<%d>" % (kind, number), len(match.group(0))))
        for match in re.finditer(r"(?<=[\w)\]}])\s([+\-*/])(?=\s)", text):
            at = begin + match.start(1)
            before, after = text[:match.start()].rstrip()[-24:], text[match.end():].lstrip()[:24]
            kind = match.group(1)
            number = self.site(kind, at, at + 1)
            if number is not None:
                site = self.sites[-1]
                site.text = " ".join(("…%s %s %s…" % (before, kind, after)).split())
                self.insert(at + 1, " mutation::op<%d> %s" % (number, kind), (0, 0))
        for match in re.finditer(r"(?:(?<=[(,=?:])|(?<=[(,=?:] )|(?<=return ))-(?=[A-Za-z_(])", text):
            at = begin + match.start()
            number = self.site("minus", at, at + 1)
            if number is not None:
                self.edits.append((at, (1, 0), "mutation::minus<%d> * " % number, 1))
        for match in ADDS.finditer(text):
            if not text.startswith("slot("):  # which takes it by reference
                self.wrap("flip", begin + match.start(), begin + match.end())
        for match in re.finditer(r"[\w.]+\.beta\(\)", text):
            self.wrap("beta", begin + match.start(), begin + match.end())
        for match in re.finditer(r"(?<![\w.:<])(?:Trans::k\w+|Store::k\w+|flip\(trans_[ab]\))", text):
            other = OPPOSITES[match.group(0)]
            self.wrap("either", begin + match.start(), begin + match.end(), other=other, tail=", " + other)
        for match in re.finditer(r"(?<=[\w)\]])\[", text):
            opened = begin + match.start()
            closed = closing(self.code, opened)
            if self.code[opened + 1:closed].strip() not in ("", "0"):
                before = len(self.sites)
                self.wrap("index", opened + 1, closed)
                if len(self.sites) > before:
                    name = re.search(r"[\w.]*(?:\[[^\[\]]*\])?$", text[:match.start()]).group(0)
                    self.sites[-1].text = "%s[%s]" % (name, self.sites[-1].text)
        self.calls(begin, text)
        for match in re.finditer(r"\.accumulate\(", text):
            opened = begin + match.end() - 1
            self.wrap("value", opened + 1, closing(self.code, opened))

    def calls(self, begin, text):
        """Neighbouring arguments exchanged, where their types allow."""
        for match in re.finditer(r"([A-Za-z_][\w:]*(?:(?:\.|->)\w+)*(?:<[^<>()]*>)?)\(", text):
            if SYMMETRIC.match(match.group(1)) or "accumulate" in match.group(1):
                continue
            opened = begin + match.end() - 1
            arguments = self.arguments(opened)
            for k in range(len(arguments) - 1):
                (a, b), (c, d) = arguments[k], arguments[k + 1]
                first, second = self.source[a:b], self.source[c:d]
                if first == second or not self.plain(first) or not self.plain(second):
                    continue
                self.wrap("either", a, b, other=" ".join(second.split()), tail=", " + second)

    def arguments(self, opened):
        closed = closing(self.code, opened)
        spans, j, start = [], opened + 1, opened + 1
        while j <= closed:
            if self.code[j] in "([{":
                j = closing(self.code, j)
            elif self.code[j] == "," or j == closed:
                a, b = start, j
                while a < b and self.code[a].isspace():
                    a += 1
                while b > a and self.code[b - 1].isspace():
                    b -= 1
                if a < b:
                    spans.append((a, b))
                start = j + 1
            j += 1
        return spans

    def plain(self, text):
        """Whether an expression may be evaluated twice."""
        text = re.sub(r"\.(data|value|shape|size|beta|state)\(\)", "", text)
        return (re.fullmatch(r"[\w\s.\->+*\[\]:]+", text)
                and not re.fullmatch(r"d_?|[\d.]+|true|false|nullptr", text))

    def mutated(self):
        """The copy's text. Lines keep their numbers."""
        parts, at = [], 0
        for place, _, text, length in sorted(self.edits, key=lambda edit: edit[:2]):
            parts += [self.source[at:place], text]
            at = place + length
        lines = ("".join(parts) + self.source[at:]).split("\n")
        # No line may be added: the header takes the place of the next one that is empty or a comment.
        k = max(i for i, line in enumerate(lines) if line.startswith("#include "))
        while lines[k].strip() and not lines[k].strip().startswith("//"):
            k += 1
        lines[k] = '#include "tests/mutants/%s"' % ("mutation-inl.h" if self.kernel else "mutation.h")
        return "\n".join(lines)
