"""The command line in processes that kill themselves (``kill -9``) at a chosen moment, and tell what they draw and use.

As a script it imports what takes long, then reads a life (:class:`Life`, as JSON) a line and forks a process for it;
it answers with the process's number, and once that has ended with how. One life at a time.
The diary gets lines on each value that is paid for: ``drawn NAME DIGEST``, and ``used NAME DIGEST`` when it is handed
over.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, local
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Moment:
    """Before or after a function, or before the commit of the transaction in it.

    Args:
        function: ``module:Class.function``.
        name_at: which argument names a value; then only values that this process drew are counted.
        transaction: what makes it.
    """

    function: str
    when: Literal["before", "after"] = "after"
    name_at: int | None = None
    transaction: str | None = None


_STORE, _LEDGER = "understudy.ledger.store.database:Database.transaction", "understudy.ledger.database:Database.write"
_PUT = "understudy.ledger.store.database:AnswerStore.put_many"
_KEEP, _CONFIRM = "understudy.ledger.store:RunStore.keep", "understudy.ledger.ledger:Ledger.confirm"
MOMENTS = {
    # values that are paid for
    "a value is drawn": Moment(_KEEP, "before", 1),
    "a value is being stored": Moment(_KEEP, name_at=1, transaction=_STORE),
    "a value is stored": Moment(_KEEP, name_at=1),
    "a value is being confirmed": Moment(_CONFIRM, name_at=1, transaction=_LEDGER),
    "a value is confirmed": Moment(_CONFIRM, name_at=1),
    # private prediction
    "a sum over private rows is made": Moment("understudy.methods.shared.decoding.sums:TokenSums.over", "before"),
    "a token is drawn": Moment("understudy.privacy.tokens:BatchTokens.choose"),
    # a language model on this machine
    "a token is chosen": Moment("understudy.models.local:choose_tokens", "before"),
    "a batch is answered": Moment("understudy.models.local:Decoder.answer"),
    "answers are being stored": Moment(_PUT, transaction=_STORE),
    "answers are stored": Moment(_PUT),
    # what is written
    "the records are written": Moment("understudy.run.outputs:OutputFolder.write_records", "before"),
    "the records stand there": Moment("understudy.run.outputs:OutputFolder.write_records"),
    "charged metrics are written": Moment("understudy.evaluate.metrics.results:ReleasedMetrics.save", "before"),
    "charged metrics stand there": Moment("understudy.evaluate.metrics.results:ReleasedMetrics.save"),
}


class Diary:
    """Lines that a ``kill -9`` does not undo, since the kernel has them; and the names that were drawn here."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.drawn: set[str] = set()

    def note(self, what: str, name: str, arrays: Mapping[str, Any]) -> None:
        encoded = b"".join(key.encode() + np.asarray(arrays[key]).tobytes() for key in sorted(arrays))
        os.write(self._file, f"{what} {name} {hashlib.sha256(encoded).hexdigest()}\n".encode())


class Killer:
    """Counts, and kills this process."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._lock = Lock()

    def strike(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def install(moment: str, number: int, diary: Diary) -> None:
    """Let this process kill itself, and keep the diary."""
    _watch_values(diary)
    aimed, killer, inside = MOMENTS[moment], Killer(number), local()

    def watching(function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            counts = aimed.name_at is None or _name(arguments[aimed.name_at]) in diary.drawn
            if counts and aimed.when == "before":
                killer.strike()
            inside.counts = counts
            made = function(*arguments, **named)
            inside.counts = False
            if counts and aimed.when == "after" and aimed.transaction is None:
                killer.strike()
            return made

        return watched

    def watching_transaction(function: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def watched(*arguments: Any, **named: Any) -> Iterator[Any]:
            with function(*arguments, **named) as connection:
                yield connection
                if getattr(inside, "counts", False):
                    killer.strike()

        return watched

    _replace(aimed.function, watching)
    if aimed.transaction is not None:
        _replace(aimed.transaction, watching_transaction)


def _replace(place: str, by: Callable[[Any], Any]) -> None:
    module, _, path = place.partition(":")
    *owners, attribute = path.split(".")
    owner = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    setattr(owner, attribute, by(getattr(owner, attribute)))


def _name(argument: Any) -> str:
    """Of a value, or of its seal."""
    return str(getattr(argument, "name", argument))


def _watch_values(diary: Diary) -> None:
    from understudy.run.door import Measurements

    given = Measurements._sealed

    def watched(door: Measurements, name: str, make: Callable[[], Any]) -> Any:
        def making() -> Any:
            arrays = make()
            diary.drawn.add(name)
            diary.note("drawn", name, arrays)
            return arrays

        value = given(door, name, making)
        diary.note("used", name, value.arrays)
        return value

    Measurements._sealed = watched  # type: ignore[method-assign]


@dataclass(frozen=True)
class Life:
    """One process.

    Args:
        words: the command, without the program's name.
        diary: the file that it adds to.
        said: the file that gets what it says.
        moment: the name of a moment at which it kills itself, ...
        number: ... when that comes for this time, counted from 1; 0 for never.
        changes: what is set in that process, by ``module:name``.
    """

    words: Sequence[str]
    diary: str
    said: str
    moment: str = "a value is drawn"
    number: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)

    def live(self) -> int:
        """In the forked process."""
        said = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(said, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        install(self.moment, self.number, Diary(Path(self.diary)))
        for place, value in self.changes.items():
            _replace(place, lambda _, value=value: value)
        sys.argv = ["understudy", *self.words]
        from understudy.cli import main

        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            return 70
        return 0


def serve() -> None:
    import dp_accounting.pld.privacy_loss_distribution  # noqa: F401
    import opendp.measurements  # noqa: F401
    import scipy.optimize  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import transformers  # noqa: F401
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM  # noqa: F401

    import understudy.cli
    import understudy.evaluate.evaluate
    import understudy.models.causal
    import understudy.models.local
    import understudy.run.pipeline  # noqa: F401

    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            code = Life(**json.loads(line)).live()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
