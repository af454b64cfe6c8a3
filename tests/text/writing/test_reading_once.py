"""Whatever reads private texts, answers or templates reads them once: no text is so long or so odd that it hangs.

A pattern that reads a run again from each of its characters needs some 10^9 steps per run here, ten minutes for all,
where one pass over each needs seconds. Nothing is timed: the subprocess has a limit only so that such a pattern fails
instead of hanging.
"""

from __future__ import annotations

import subprocess
import sys

_LENGTH = 100_000
_HANGS = 240
_RUNS = (
    *(" ", "\t", "\r", "\n", " \n", "\n ", "\r\n", "\x85", "\u2028", "\u00a0"),
    *(".", "!", "?", "\u2026", '."', '"', ")", "]", "\u3002", ". ", ".a", "a.", "a", "1", "@", "1.", "a@"),
    *("[", "{", "{a", "[{a}", "{a}]", "<think>", "_", "'", "a'", "a-"),
)
_SECRETS = ("12-", "1 ", "a@", "a.", "::", "www.a,", "2000-01-01/", "4111 1111 ", "GB29", "(1) ")
_READERS = {
    "a shown text": "predicting._shown(text, ('\\n\\n',))",
    "a pattern of a prompt": "predicting._fill(text, {'a': 'b'})",
    "a clause of a prompt": "fill_in(text, {'a': 'b'})",
    "an answer": "tidy(Completion(text, 'length', 1, 1))",
    "an answer with blanks": "with_blanks(text, 0.5, np.random.default_rng(0))",
    "an answer with thoughts": (
        "read_answer({'choices': [{'message': {'content': text}, 'finish_reason': 'stop'}]}, most=10**9)"
    ),
    "words": "split_words(text)",
    "words of any script": "split_words('\\u00e9' + text)",
    "pieces": "pieces(fold(text))",
    "a record": "RecordCheck(('a', 'b'))(text)",
    "secrets": "SecretFinder(detectors=make_detectors(BUILT_IN)).find(text)",
}
_IMPORTS = """
import numpy as np
from understudy.corpus.secrets.detectors import BUILT_IN, make_detectors
from understudy.corpus.secrets import SecretFinder
from understudy.corpus.normalise import fold, pieces
from understudy.methods.shared.evolution.variation import with_blanks
from understudy.text.prompts import predicting
from understudy.text.prompts.evolving import fill_in
from understudy.text.writing import tidy
from understudy.models.connection import read_answer
from understudy.models.types import Completion
from understudy.methods.shared.decoding.structured import RecordCheck
from understudy.text.vocabulary.words import split_words
"""


def test_a_long_run_of_one_thing_is_read_once_by_every_reader() -> None:
    lines = [_IMPORTS]
    for name, reader in _READERS.items():
        runs = _SECRETS if name == "secrets" else _RUNS
        length = _LENGTH // 4 if name == "secrets" else _LENGTH  # nine detectors, linear but slow
        texts = [(first, each, last) for each in runs for first, last in (("", ""), ("x", "!x"))]
        lines.append(f"""
for first, each, last in {texts!r}:
    text = first + each * ({length} // len(each)) + last
    try:
        {reader}
    except ValueError:
        pass
print({name!r}, flush=True)
""")
    try:
        ended = subprocess.run([sys.executable, "-c", "".join(lines)], capture_output=True, timeout=_HANGS, check=False)
        read, said = ended.stdout, ended.stderr.decode()
    except subprocess.TimeoutExpired as hung:
        read, said = hung.stdout or b"", "the next one hangs"
    assert read.decode().splitlines() == list(_READERS), said
