# SPDX-License-Identifier: Apache-2.0
"""Runs a verb of the command inside this process: its options from Python's names, its answer from JSON, its remarks in Python's words."""

import atexit
import difflib
import inspect
import json
import logging
import os
import re
import sys
import threading
import time
import warnings
import weakref

import numpy as np

from . import _qk
from ._arrays import Semantics

log = logging.getLogger("qk")
log.addHandler(logging.NullHandler())  # what nobody asked to see is not printed twice
_table = None
_calls = weakref.WeakSet()  # whose verbs may be at work in threads of their own
_ends = threading.Event()
_mark = "warning: "  # begins the command's remarks on what is wrong or has to be done


class Remark(UserWarning):
    """What is wrong, or has to be done. What is only worth knowing is in a result's .remarks, and in logging's "qk"."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a search; `result` is the best so far, or None where nothing was measured yet."""

    def __init__(self, result):
        super().__init__("interrupted; .result is the best so far" if result is not None else "interrupted before anything was measured")
        self.result = result


def verbs():
    """Returns the command's verbs with their options: the table from which the command itself is made."""
    global _table
    if _table is None:
        _table = _qk.verbs()
    return _table


def python_name(option):
    return option["name"].lstrip("-").replace("-", "_").lower()


def options_of(verb):
    return {python_name(o): o for o in verbs()[verb]["options"] if not o["argument"]}


def _with_choices(verb, known, given):
    """Puts the choices of a qk.Semantics where the verb has options for them."""
    semantics = given.get("semantics")
    if not isinstance(semantics, Semantics):
        return given
    given = {**given, "semantics": semantics.name}
    for name, value in semantics.choices().items():
        if name not in known or (name == "seed" and "random_bits" not in known):  # elsewhere seed= is another's
            raise TypeError(f"{verb}() has no option for {name}={value!r} of the qk.Semantics; a request of a qk.Plan takes it: "
                            f"{{\"format\": ..., \"semantics\": qk.Semantics(...)}}")
        if given.get(name) in (None, False):
            given[name] = value
    return given


def words_of(verb, given):
    """Returns the words of the command for options by Python's names."""
    known, words = options_of(verb), []
    for name, value in _with_choices(verb, known, given).items():
        option = known.get(name)
        if option is None:
            near = difflib.get_close_matches(name, known, 1)
            raise TypeError(f"{verb}() has no option {name!r}{f'; did you mean {near[0]!r}?' if near else ''} (help(qk.{verb}) lists them)")
        if value is None or value is False:
            continue
        if isinstance(value, np.bool_):
            value = bool(value)
            if not value:
                continue
        flag = option["name"]
        if option["kind"] == "flag":
            if value is not True:
                raise TypeError(f"{name} is True or False, not {value!r}")
            words.append(flag)
        elif value is True:
            if not option["alone"]:
                raise TypeError(f"{name} needs a value, {option['value']}")
            words.append(flag)
        elif option["kind"] == "list":
            values = [value] if isinstance(value, (str, os.PathLike)) or not hasattr(value, "__iter__") else list(value)
            words += [f"{flag}={_text(v, name)}" for v in values]
        else:
            words.append(f"{flag}={_text(value, name)}")
    return words


def _text(value, name):
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (str, int, float)) or hasattr(value, "__index__") or hasattr(value, "__float__"):
        return repr(float(value)) if isinstance(value, float) else str(value)
    if hasattr(value, "name") and isinstance(value.name, str):  # a qk.Format
        return value.name
    raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; give text or a number")


_call_of_command = re.compile(r"`?\bqk ([a-z]+) --([a-z][a-z0-9-]*)(?: ([\w.-]+\.\w+|[A-Z]+))?`?")
_option = re.compile(r"--([a-z][a-z0-9-]*)(?: ([A-Z]\.?\w*\.\w+|\w+(?=:)))?")


def spoken(verb, line):
    """Returns a sentence of the command in Python's words: its options are arguments, its verbs functions."""
    def argument(options, name, value):
        option = options.get(name.replace("-", "_"))
        if option is None:
            return None
        return python_name(option) + ("=True" if option["kind"] == "flag" else f"={value}" if value else "=")

    def call(found):
        own, value = found[1], found[3]
        said = argument(options_of(own), found[2], value) if own in verbs() else None
        return found[0] if said is None else f"qk.{own}({said}{'...' if said.endswith('=') else ''})"

    def option(found):
        said = argument(options_of(verb), found[1], found[2])
        if said is None:
            return found[0]
        behind, before = line[found.end():], line[:found.start()]
        if not found[2] and (before.endswith("option ") or behind.startswith((":", "'", " '"))):  # the name alone is meant
            return said.partition("=")[0]
        return said if found[2] or said.endswith("True") else said + "..."

    line = _call_of_command.sub(call, line)
    return _option.sub(option, line)


def shown(words):
    """Returns the call as a command line, for reports."""
    return " ".join(["qk", *(f"'{w}'" if any(c in w for c in " '\"*?$;|&<>()") or not w else w for w in words)])


class _Bar:
    """Progress as a line on standard error, or as a bar of tqdm in a notebook."""

    def __init__(self):
        self.bar, self.what, self.last, self.drawn, self.start = None, "", 0.0, False, time.monotonic()
        self.notebook = "ipykernel" in sys.modules
        self.terminal = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, what, done, all):
        if self.notebook:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                self.notebook = False
                return
            if self.bar is None or self.what != what.partition(",")[0]:
                self.close()
                self.what = what.partition(",")[0]
                self.bar = tqdm(total=all or None, desc=what)
            self.bar.n = done
            self.bar.set_description(what)
        elif self.terminal and time.monotonic() - self.last > 0.1:
            self.last, self.drawn = time.monotonic(), True
            part = f"{done}/{all}" if all else str(done)
            sys.stderr.write(f"\r\033[K{part} {what}  {time.monotonic() - self.start:.1f} s")
            sys.stderr.flush()

    def close(self):
        if self.bar is not None:
            self.bar.close()
            self.bar = None
        if self.drawn:
            sys.stderr.write("\r\033[K")
            self.drawn = False


def measures(function):
    """Returns whether a metric takes the outputs alone."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters) or len(
        [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]) >= 3
    if len(needed) > 3 or (not several and len(needed) not in (1, 3)):
        raise TypeError(f"metric takes (outputs, reference, labels), or the outputs alone; {function!r} takes {len(needed)} arguments")
    return not several


def _title(function):
    """Returns the name of a function that was defined with one; None for a lambda or an object."""
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) and name.isidentifier() else None


class _Measure:
    """A function of the caller's that measures: what it returns becomes a number, or an error that names the function."""

    def __init__(self, function, name):
        self.function, self.name, self.not_a_number, self.calls = function, name, 0, 0
        self.title = _title(function) or name  # what results and pages call it

    def __call__(self, *arguments):
        value = self.function(*arguments)
        self.calls += 1
        number = value
        if not isinstance(value, (int, float)):
            if getattr(value, "size", None) == 1 or callable(getattr(value, "numel", None)) and value.numel() == 1:
                number = value.item()  # an array or a tensor of one number
            try:
                if isinstance(number, (str, bytes)):
                    raise TypeError
                number = float(number)
            except (TypeError, ValueError):
                raise TypeError(f"{self.name} returned {str(value)[:80]}, a {type(value).__name__}; it must return one number") from None
            except OverflowError:
                pass  # said below
        try:
            number = float(number)
        except OverflowError:
            raise ValueError(f"{self.name} returned a number that is too large for float64, of type {type(value).__name__}") from None
        self.not_a_number += number != number
        return number

    def remark(self):
        """Returns what the caller should know of it, or None."""
        if not self.not_a_number:
            return None
        return f"{self.name} returned NaN for {self.not_a_number} of {self.calls} models; NaN meets no target"


@atexit.register
def _end():
    """Ends the verbs of daemon threads while the interpreter can still hear them: those that computed on would meet libraries that the
    process takes apart. What does not listen within ten seconds is left alone."""
    _ends.set()
    until, calls = time.monotonic() + 10, list(_calls)
    for call in calls:
        call.interrupt()
    for call in calls:
        call.wait(max(0.0, until - time.monotonic()))


os.register_at_fork(after_in_child=_calls.clear)  # their threads stayed with the parent


def _rest_if_ending():
    """Holds a daemon thread where the interpreter ends, which does not wait for it: a verb that was ended is no result."""
    while _ends.is_set() and threading.current_thread().daemon:
        time.sleep(1)


def run(verb, words, *, metric=None, eval_func=None, eval_func_path=False, progress=None, command=None, warn=True, stack=4,
        elsewhere=None, multiply=None, memory=None, kept=None, known=str):
    """Runs a verb, `memory` being what stands for words in it (_models._written). `kept`, a dictionary, gets what the verb makes where no
    option names a file for it. `known` says a remark by what the caller knows. Returns (exit status, JSON or None, remarks, whether Ctrl-C
    ended it). Errors are qk.Error, or the caller's own."""
    if eval_func is not None and not callable(eval_func):
        raise TypeError(f"eval_func is a function of a model, not {type(eval_func).__name__}")
    if progress is not None and not callable(progress) and not isinstance(progress, (bool, np.bool_)):
        raise TypeError(f"progress is {progress!r}, a {type(progress).__name__}; it is True, False or a function of (what, done, all)")
    alone = metric is not None and measures(metric)
    metric, eval_func = (None if f is None else _Measure(f, name) for f, name in ((metric, "metric"), (eval_func, "eval_func")))
    log.debug("%s", shown([verb, *words]))
    _rest_if_ending()
    call = _qk.Call([verb, *words], command or shown([verb, *words]), metric, eval_func, alone, bool(eval_func_path), elsewhere,
                    multiply, memory or {}, kept is not None)
    _calls.add(call)
    own = None if callable(progress) or progress is False else _Bar()
    show = progress if callable(progress) else own if progress or (progress is None and own and (own.terminal or own.notebook)) else None
    interrupted, before = False, None
    try:
        while True:
            try:
                if call.wait(0.05):
                    break
                if show is not None and (state := call.progress()) != before and state[0]:
                    before = state
                    show(*state)
            except KeyboardInterrupt:
                interrupted = True
                call.interrupt()
    except BaseException:
        call.interrupt()
        raise
    finally:
        if own is not None:
            own.close()
    _rest_if_ending()
    try:
        status, text, remarks = call.result()
        if kept is not None:
            kept.update(call.kept())
    except BaseException:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    remarks = list(dict.fromkeys(spoken(verb, known(r)) for r in remarks.splitlines() if r))  # two lines of a file may be one request
    remarks += [_mark + r for f in (metric, eval_func) if f is not None and (r := f.remark())]
    for r in remarks:
        serious = r.startswith(_mark)
        log.log(logging.WARNING if serious else logging.INFO, "%s", r.removeprefix(_mark))
        if warn and serious:
            warnings.warn(r.removeprefix(_mark), Remark, stacklevel=stack)
    if status < 0 or (interrupted and not text):
        raise KeyboardInterrupt
    try:
        answer = json.loads(text) if text.strip() else None
    except json.JSONDecodeError:
        answer = text
    return status, answer, remarks, interrupted


def signature(verb, first, extra=()):
    """Returns the signature of a function that is made from a verb's options."""
    kinds = inspect.Parameter
    parameters = [kinds(n, kinds.POSITIONAL_OR_KEYWORD) if d is kinds.empty else kinds(n, kinds.POSITIONAL_OR_KEYWORD, default=d) for n, d in first]
    taken = {n for n, _ in first}
    for name, option in options_of(verb).items():
        if name not in taken and name not in ("json", "inputs"):
            parameters.append(kinds(name, kinds.KEYWORD_ONLY, default=False if option["kind"] == "flag" else None))
            taken.add(name)
    parameters += [kinds(n, kinds.KEYWORD_ONLY, default=d) for n, d in extra if n not in taken]
    return inspect.Signature(parameters)


def documentation(verb, text):
    """Returns a docstring: what the verb does, then its options from the command's table."""
    entry = verbs()[verb]
    lines = [entry["summary"] + ".", "", text, "", "Options (the command's, under the same names):"]
    for name, option in options_of(verb).items():
        if name not in ("json", "inputs"):
            lines.append(f"    {name}: {option['text']}")
    return "\n".join(lines)
