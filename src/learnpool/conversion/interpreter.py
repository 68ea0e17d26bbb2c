"""Follow a function statement by statement without a tensor: loops over known sequences are unrolled, and
both branches of an unknown condition are followed.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from .evaluation import UNKNOWN, Evaluator, Scope, call_safely, is_true

_SEQUENCES = (tuple, list, range, dict, nn.Sequential, nn.ModuleList, nn.ModuleDict)
_MOST_ITEMS = 1000


@dataclass(frozen=True)
class Closure:
    """A lambda or an inner function."""

    node: Any
    scope: Scope


class Interpreter(Evaluator):
    """Runs the statements of functions; a subclass says what a call does."""

    conditions = 0  # how many unknown conditions decide whether the current statement runs

    def run(self, node: Any, scope: Scope, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a function or lambda with these arguments; its result, if that is known."""
        arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        defaults = dict(zip(arguments[::-1], [self.evaluate(d, scope) for d in node.args.defaults[::-1]], strict=False))
        every = [*arguments, *(argument.arg for argument in node.args.kwonlyargs)]
        scope.names |= {name: kwargs.get(name, defaults.get(name, UNKNOWN)) for name in every}
        scope.names |= dict(zip(arguments, args, strict=False))
        if isinstance(node, ast.Lambda):
            return self.evaluate(node.body, scope)
        conditions = self.conditions
        result: list[Any] = []
        self.run_block(node.body, scope, result)
        self.conditions = conditions
        return result[0] if len(result) == 1 else UNKNOWN

    def run_closure(self, closure: Closure, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self.run(closure.node, closure.scope.copy(), args, kwargs)

    # expressions that bind names or are not always evaluated

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        return Closure(node, scope)

    def _namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        value = self.evaluate(node.value, scope)
        self.bind(node.target, value, scope)
        return value

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Any:
        truth = is_true(self.evaluate(node.test, scope))
        if truth is not None:
            return self.evaluate(node.body if truth else node.orelse, scope)
        self.conditions += 1
        self.evaluate(node.body, scope), self.evaluate(node.orelse, scope)
        self.conditions -= 1
        return UNKNOWN

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Any:
        stop = isinstance(node.op, ast.Or)
        conditions, is_certain = self.conditions, True
        value: Any = UNKNOWN
        for part in node.values:
            value = self.evaluate(part, scope)
            truth = is_true(value)
            if truth is stop:
                break
            if truth is None:
                is_certain, self.conditions = False, self.conditions + 1
        short_circuits = is_true(value) is stop and isinstance(value, bool)
        self.conditions = conditions
        return value if is_certain or short_circuits else UNKNOWN

    def _listcomp(self, node: Any, scope: Scope) -> Any:
        values: list[Any] = []
        known = self.unroll(node.generators, node, scope.copy(), values)
        return values if known else UNKNOWN

    _generatorexp = _setcomp = _dictcomp = _listcomp

    def unroll(self, generators: list[ast.comprehension], node: Any, scope: Scope, values: list[Any]) -> bool:
        if not generators:
            parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
            values.append([self.evaluate(part, scope) for part in parts][-1])
            return not isinstance(node, ast.DictComp)
        first, *rest = generators
        items, known = self.list_items(self.evaluate(first.iter, scope))
        for item in items:
            self.bind(first.target, item, scope)
            tests = [is_true(self.evaluate(test, scope)) for test in first.ifs]
            known = known and None not in tests
            if False not in tests:
                known = self.unroll(rest, node, scope, values) and known
        return known

    def list_items(self, value: Any) -> tuple[Sequence[Any], bool]:
        if isinstance(value, (*_SEQUENCES, enumerate, zip, reversed)) or hasattr(type(value), "__next__"):
            elements = call_safely(list, value)
            if elements is not UNKNOWN and len(elements) <= _MOST_ITEMS:
                return elements, True
        return [UNKNOWN], False

    def bind(self, target: ast.expr, value: Any, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            fits = isinstance(value, (tuple, list)) and len(value) == len(target.elts)
            for i, part in enumerate(target.elts):
                self.bind(part, value[i] if fits else UNKNOWN, scope)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, UNKNOWN, scope)
        else:
            self.evaluate(target, scope)

    # statements

    def run_block(self, body: list[ast.stmt], scope: Scope, result: list[Any]) -> str:
        """Run statements; how they end: "", or with a return, break or continue."""
        for statement in body:
            end = self.run_statement(statement, scope, result)
            if end:
                return end
        return ""

    def run_statement(self, node: ast.stmt, scope: Scope, result: list[Any]) -> str:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope.names[node.name] = Closure(node, scope)
        elif isinstance(node, ast.If):
            return self.run_branch(node, scope, result)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            for item in self.list_items(self.evaluate(node.iter, scope))[0]:
                self.bind(node.target, item, scope)
                end = self.run_block(node.body, scope, result)
                if end in ("break", "return"):
                    return "return" if end == "return" else ""
            return self.run_block(node.orelse, scope, result)
        elif isinstance(node, ast.While):
            self.evaluate(node.test, scope)
            self.run_block(node.body, scope, result)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self.evaluate(item.context_expr, scope)
            return self.run_block(node.body, scope, result)
        elif isinstance(node, ast.Try):
            end = self.run_block(node.body, scope, result)
            self.conditions += 1
            for handler in node.handlers:
                self.run_block(handler.body, scope, [])
            self.conditions -= 1
            return self.run_block([*node.orelse, *node.finalbody], scope, result) or end
        elif isinstance(node, ast.Match):
            self.conditions += 1
            for case in node.cases:
                self.run_block(case.body, scope, result)
            self.conditions -= 1
        elif isinstance(node, (ast.Return, ast.Raise)):
            result.append(self.evaluate(node.value if isinstance(node, ast.Return) else node.exc, scope))
            return "return"
        elif isinstance(node, (ast.Break, ast.Continue)):
            return type(node).__name__.lower()
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            value = self.evaluate(node.value, scope) if node.value is not None else UNKNOWN
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.bind(target, UNKNOWN if isinstance(node, ast.AugAssign) else value, scope)
        elif isinstance(node, (ast.Expr, ast.Assert)):
            self.evaluate(node.value if isinstance(node, ast.Expr) else node.test, scope)
        return ""

    def run_branch(self, node: ast.If, scope: Scope, result: list[Any]) -> str:
        truth = is_true(self.evaluate(node.test, scope))
        if isinstance(node.body[-1], ast.Raise):
            truth = False  # a check: where it fails nothing runs
        elif node.orelse and isinstance(node.orelse[-1], ast.Raise):
            truth = True
        if truth is not None:
            return self.run_block(node.body if truth else node.orelse, scope, result)
        self.conditions += 1
        before, after, ends = {**scope.names}, [], []
        for body in (node.body, node.orelse):
            scope.names = {**before}
            ends.append(self.run_block(body, scope, result))
            after.append(scope.names)
        self.conditions -= 1
        one, other = after
        scope.names = {name: one[name] if one[name] is other.get(name, UNKNOWN) else UNKNOWN for name in one}
        scope.names |= {name: UNKNOWN for name in other if name not in one}
        if all(ends):
            return ends[0] if ends[0] == ends[1] else "return"
        if any(ends):
            self.conditions += 1  # the rest runs only where this branch did not end; run() sets it back
            if ends == ["return", ""] or ends == ["", "return"]:
                scope.names = after[ends.index("")]
        return ""
