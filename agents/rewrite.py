"""Changing a program's text by its tree: wrap a block, decorate a function, put a call behind an expression.

Every change is checked against the tree before it leaves this module: what was not meant to change means the same.
"""

import ast
import functools
import io
import tokenize
from collections import defaultdict
from collections.abc import Mapping, Sequence

from headroom.agents.edits import patch_between, syntax_error
from headroom.agents.syntax import (
    Function,
    ParsedFile,
    first_line,
    import_line,
    parse_file,
    torch_import,
)
from headroom.agents.text import Change
from headroom.errors import PatchError
from headroom.records.patch import Patch

# Expressions that a method call can follow without parentheses.
_ATOMS = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Call,
    ast.List,
    ast.Dict,
    ast.Set,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
)
_DEFAULT_UNIT = "    "


def patch_for(
    changes: Mapping[ParsedFile, Sequence[Change]], *, title: str, reason: str
) -> Patch | None:
    """The changes of each file as a patch; None when a result would not compile, or nothing changes."""
    before = {parsed.path: parsed.data for parsed in changes}
    try:
        after = {
            parsed.path: parsed.text.changed(parts).to_bytes() for parsed, parts in changes.items()
        }
        if any(syntax_error(path, data) is not None for path, data in after.items()):
            return None
        return patch_between(before, after, title=title, reason=reason)
    except (ValueError, PatchError):
        return None


def decorate(parsed: ParsedFile, function: Function, decorator: str) -> Change:
    """Add a decorator closest to the `def`, where it applies to the plain function under any other decorator."""
    at = function.lineno - 1
    return Change(at, 0, (_indent(parsed.text.lines[at]) + decorator,))


def torch_name(parsed: ParsedFile, before_line: int) -> tuple[str, tuple[Change, ...]]:
    """The name of torch for code at `before_line`, and the import that has to be added for it, if any."""
    bound = torch_import(parsed.tree)
    if bound is not None and bound[1] < before_line:
        return bound[0], ()
    top = next(node for node in parsed.tree.body if (node.end_lineno or 0) >= before_line)
    at = min(import_line(parsed.tree), first_line(top)) - 1
    return "torch", (Change(at, 0, ("import torch",)),)


def wrap(parsed: ParsedFile, statement: ast.stmt, header: str) -> tuple[Change, ast.stmt] | None:
    """Put a statement under `header`; None when its lines cannot be moved without changing what they mean.

    Statements that share its lines go along. The second value is the first statement that was moved.
    """
    block = _siblings_on_same_lines(parsed, statement)
    if block is None:
        return None
    start, stop = first_line(block[0]) - 1, block[-1].end_lineno or block[-1].lineno
    fixed = _lines_inside_strings(parsed)
    if fixed is None:
        return None
    indent = _indent(parsed.text.lines[start])
    unit = _unit(parsed, block[0])
    moved = [
        line if number in fixed else _deeper(line, indent, unit)
        for number, line in enumerate(parsed.text.lines[start:stop], start + 1)
    ]
    change = Change(start, stop - start, (indent + header, *moved))
    return (change, block[0]) if _same_meaning(parsed, change, block) else None


def _siblings_on_same_lines(parsed: ParsedFile, statement: ast.stmt) -> list[ast.stmt] | None:
    """The statement with those it shares lines with; None when they do not start on a line of their own."""
    parent = parsed.parents[statement]
    body = next(
        (
            value
            for _, value in ast.iter_fields(parent)
            if isinstance(value, list) and statement in value
        ),
        None,
    )
    if body is None:
        return None
    first = last = body.index(statement)
    while first > 0 and (body[first - 1].end_lineno or 0) >= first_line(body[first]):
        first -= 1
    while last + 1 < len(body) and (body[last].end_lineno or 0) >= first_line(body[last + 1]):
        last += 1
    start = body[first]
    line = parsed.text.lines[first_line(start) - 1]
    on_own_line = line.encode()[: start.col_offset].strip() == b""
    continues_if = isinstance(start, ast.If) and line.lstrip().startswith("elif")
    return body[first : last + 1] if on_own_line and not continues_if else None


@functools.lru_cache(maxsize=64)
def _lines_inside_strings(parsed: ParsedFile) -> frozenset[int] | None:
    """Lines, counted from 1, that begin inside a string; None when the file does not tokenize."""
    inside: set[int] = set()
    openings: list[int] = []
    try:
        for token in tokenize.tokenize(io.BytesIO(parsed.data).readline):
            name = tokenize.tok_name[token.type]
            if name == "STRING":
                inside.update(range(token.start[0] + 1, token.end[0] + 1))
            elif name in {"FSTRING_START", "TSTRING_START"}:
                openings.append(token.start[0])
            elif name in {"FSTRING_END", "TSTRING_END"}:
                inside.update(range(openings.pop() + 1, token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError, IndexError):
        return None
    return frozenset(inside)


def _deeper(line: str, indent: str, unit: str) -> str:
    if not line.strip():
        return line
    if line.startswith(indent):
        return indent + unit + line[len(indent) :]
    # A continuation line, or a comment that was pushed to the left: its indentation means nothing.
    return line if line.lstrip().startswith("#") else unit + line


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _unit(parsed: ParsedFile, statement: ast.stmt) -> str:
    """One step of indentation as the code around a statement has it."""
    pairs: list[tuple[ast.AST, ast.AST]] = []
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        pairs.append((statement, body[0]))
    pairs.append((parsed.parents[statement], statement))
    pairs += [(parsed.parents[node], node) for node in parsed.parents if isinstance(node, ast.stmt)]
    for outer, inner in pairs:
        if (
            isinstance(outer, ast.stmt)
            and isinstance(inner, ast.stmt)
            and outer.lineno != inner.lineno
        ):
            wide = _indent(parsed.text.lines[first_line(inner) - 1])
            narrow = _indent(parsed.text.lines[first_line(outer) - 1])
            if wide.startswith(narrow) and wide != narrow:
                return wide[len(narrow) :]
    return _DEFAULT_UNIT


def _same_meaning(parsed: ParsedFile, change: Change, block: Sequence[ast.stmt]) -> bool:
    """Whether the moved statements parse to the very tree they had."""
    text = parsed.text.changed([change])
    after = parse_file(parsed.path, text.to_bytes())
    if after is None:
        return False
    for node in ast.walk(after.tree):
        if isinstance(node, ast.With) and node.lineno == change.start + 1:
            return [ast.dump(child) for child in node.body] == [ast.dump(child) for child in block]
    return False


def surround(parsed: ParsedFile, texts: Mapping[ast.expr, tuple[str, str]]) -> list[Change]:
    """Put text before and after expressions, with parentheses around those that a method call could not follow."""
    insertions: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for node, (before, after) in texts.items():
        end_line, end = node.end_lineno or node.lineno, node.end_col_offset or 0
        closing = _closing_parenthesis(parsed, node)
        if not isinstance(node, _ATOMS) and closing is None:
            before, after = f"{before}(", f"){after}"
        if before:
            insertions[node.lineno].append((node.col_offset, 1, before))
        if closing is not None and not isinstance(node, _ATOMS):
            end_line, end = closing
        insertions[end_line].append((end, 0, after))
    changes = []
    for line, parts in insertions.items():
        # Offsets of the tree count bytes of UTF-8.
        data = parsed.text.lines[line - 1].encode()
        for offset, _, text in sorted(parts, reverse=True):
            data = data[:offset] + text.encode() + data[offset:]
        changes.append(Change(line - 1, 1, (data.decode(),)))
    return changes


def _closing_parenthesis(parsed: ParsedFile, node: ast.expr) -> tuple[int, int] | None:
    """Where an assigned value's own parentheses end: `total += (a + b)`; None when it has none around it."""
    statement = parsed.parents.get(node)
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return None
    end = (statement.end_lineno or 0, statement.end_col_offset or 0)
    return end if end != (node.end_lineno, node.end_col_offset) else None


def wrap_expression(parsed: ParsedFile, node: ast.expr, before: str, after: str) -> list[Change]:
    """Put text around an expression."""
    pieces = {(node.lineno, node.col_offset): before}
    pieces[node.end_lineno or node.lineno, node.end_col_offset or 0] = after
    lines = {line: parsed.text.lines[line - 1].encode() for line, _ in pieces}
    for (line, offset), text in sorted(pieces.items(), reverse=True):
        lines[line] = lines[line][:offset] + text.encode() + lines[line][offset:]
    return [Change(line - 1, 1, (data.decode(),)) for line, data in lines.items()]
