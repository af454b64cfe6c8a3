"""Remove from a model's answer everything that is clearly not the requested text; the rules are data.

A rule does not remove words that a text may contain: "Sure, here is my address:" stays, and so do a fence inside a
text, ``<s>old</s>`` (HTML) and special tokens in backticks. The quality of an answer is not judged. Every pattern reads
an answer once, as an endpoint may send answers of any length.
"""

from __future__ import annotations

import re
from functools import partial

_END = r"(?:</(?:seed:)?(?:ant)?think(?:ing)?\s*+>|\[/think\]|◁/think▷)"
_LINE = r"(?:\A\s*+|^)"
THOUGHTS = (
    r"\A.*<\|channel\|>\s*+final\b[^<]{0,99}<\|message\|>",  # harmony, as gpt-oss writes it
    r"<\|channel\|>\s*+(?:analysis|commentary)\b.*",
    r"(?-i:\A\s*+analysis.*?assistantfinal)",  # the same from a server that leaves out special tokens
    r"\A\s*+here is my thought process:.*?here is my response:",  # Granite
    rf"(?:<(?:seed:)?(?:ant)?think(?:ing)?(?:\s[^<>]*+)?>|◁think▷|{_LINE}\[think\]).*?(?:{_END}|\Z)",
    rf"{_LINE}<(thoughts?|reasoning|scratchpad)>.*?(?:</\1>|\Z)",
    r"\A\s*+\[(thinking|thought|reasoning)\].*?\[/\1\]",
    r"<\|(?:begin_of_thought|start_thinking)\|>.*?(?:<\|end_(?:of_thought|thinking)\|>|\Z)",
    r"<\|channel>thought\b.*?(?:<channel\|>|\Z)",  # Gemma
    rf"\A.*{_END}|<think\s*+/>",  # some chat templates open the thought in the prompt
)
TOKENS_BEFORE = (  # the text, with the name of who speaks
    r"\A\s*+(?:(?:<s>|<bos>|<start_of_turn>|<\|turn>|\[/INST\]|<[|｜](?!start_thinking|begin_of_thought)"
    r"(?:im_sep|message|[\w▁]{0,20}(?:start|begin|assistant|chatbot|header|response|solution)[\w▁]{0,20})[|｜]>)\s*+"
    r"(?:(?:assistant|model)(?=\s*\n|<))?+\s*+)+"
)
TOKENS_BEHIND = (  # the text, with all behind them
    r"(?<![^`]`)(?:<\|/?[\w:.▁-]{1,40}\|>|<｜[^｜<>\n]{1,40}｜>|\[\|\w{1,40}\|\]|<(?:end|start)_of_(?:turn|utterance)>"
    r"|<turn\|>|<\|turn>|<(?:eos|bos|pad)>|\[/?INST\]|<<SYS>>|<extra_id_\d{1,4}>)"
)
_SURE = (
    r"(?:sure|certainly|of course|absolutely|okay|ok|great|all ?right|got it|no problem|gladly|happy to help|"
    r"understood|as requested|i'd be|natürlich|gerne?|klar|selbstverständlich|bien sûr|claro|por supuesto|certo)\b"
)
_HERE = r"(?:here(?:['’]s| is| are)|below (?:is|are)|hier (?:ist|kommt)|voici|aquí (?:está|tienes?)|ecco)\b"
_SAID = r"(?:(?!\b(?:my|mine|our|ours|i|we|me|us)\b)[^.!?:\n]){0,160}"  # who speaks of themselves writes a text
_ASKED = (
    r"\b(?:text[eo]?s?|testo|json|tickets?|reviews?|clinical note|article|abstract|passages?|paragraphs?|"
    r"short document|(?:synthetic|fictional|realistic|rewritten|rephrased) (?:\w+ )?\w+)"
)
_ONE = (
    r"\b(?:an?|one|your)\b[^.!?:\n]{0,60}\b(?:notes?|message|e-?mail|document|record|question|summary|description|"
    r"example|post|dialogue|conversation|story|response|version|sample|entry|report|letter|answer|transcript)"
)
_NOUN_ENDS = r"\b(?=[\s*_]*[:.!]| (?:you|that|which|with|using|contain|includ|incorporat|based|in|about|for)\w*)"
_WORDS = r"\b(?:us|contain|includ|incorporat)\w+[^.!?:\n]{0,60}\b(?:words|phrases|keywords|terms)\b"
_OVER = r"(?::[*_]*+(?:\s++|\Z)|[.!][*_]*+\s*+(?:\n\s*+|\Z))(?:(?:-{3,}|\*{3,})\s*\n)?"
PREAMBLE = (
    r"\s*+[*_#> ]*+(?:"
    rf"{_SURE}[^\n]{{0,150}}?{_HERE}(?={_SAID}{_OVER}){_SAID}(?:{_ASKED}|{_ONE}){_NOUN_ENDS}{_SAID}{_OVER}"
    rf"|{_HERE}(?={_SAID}:){_SAID}(?:{_ASKED}{_NOUN_ENDS}|{_WORDS}){_SAID}{_OVER})"
)
CLOSING = (  # that speaks of the text
    r"\(?\**(?:(?:note: )?th(?:is|e) (?:text|ticket|note|review|document|passage) (?:us|contain|includ)\w+ all\b"
    r".*\b(?:words|phrases|keywords)\b|word count:?\**:? *\d+).*"
)
CLOSING_OF_A_CHAT = (  # only behind a preamble, as a letter may end so
    r"(?:please )?(?:let me know|feel free|don['’]t hesitate|(?:i )?hope (?:this|that|it)|is there|if there['’]s"
    r"|would you like|if you (?:need|have|want|would|['’]d))\b.*|[-*]{3,}\s*"
)
QUOTES = ('""', "“”", "„“", "«»", "»«", "‘’", "「」", "''", "**")
AROUND = (  # everything: one fence, one tag
    r"\s*+(?:```+|~~~+)[\w-]*+[ \t]*+\n((?:(?!```|~~~).)*+)(?:(?:```+|~~~+)\s*)?",
    r"\s*+<(?:answer|final_answer|response|output)>([^<]*+)(?:</(?:answer|final_answer|response|output)>\s*)?",
)
_ECHO = 40  # characters of a prompt that no text repeats by chance
_compiled = partial(re.compile, flags=re.IGNORECASE | re.DOTALL | re.MULTILINE)
_THOUGHTS, _AROUND = tuple(map(_compiled, THOUGHTS)), tuple(map(_compiled, AROUND))
_BEFORE, _BEHIND, _PREAMBLE = map(_compiled, (TOKENS_BEFORE, TOKENS_BEHIND, PREAMBLE))
_CLOSINGS = _compiled(CLOSING), _compiled(f"{CLOSING}|{CLOSING_OF_A_CHAT}")


def without_thoughts(answer: str) -> tuple[str, bool]:
    """Return ``answer`` without thoughts and special tokens, and whether it had thoughts."""
    before = text = answer if "<|channel|>" in answer.lower() else _BEFORE.sub("", answer)
    for pattern in _THOUGHTS:
        text = pattern.sub("", text)
    if thought := text != before:
        text = _BEFORE.sub("", text).lstrip()
    if end := _BEHIND.search(text):
        text = text[: end.start()].rstrip()
    return text if "<s>" in text.lower() else text.partition("</s>")[0], thought


def without_wrapping(text: str, prompt: str = "") -> tuple[str, bool]:
    """Return ``text`` without an echo of ``prompt`` and the words around it, and whether any were there.

    >>> without_wrapping("Sure! Here is the text you asked for:\\n\\nIt rains.\\n\\nLet me know if you need more!")
    ('It rains.', True)
    """
    inner, prompt = text.strip(), prompt.strip()
    inner = inner.removeprefix(prompt).lstrip() if len(prompt) >= _ECHO else inner
    if begun := _PREAMBLE.match(inner):
        inner = inner[begun.end() :]
    for _ in range(5):  # at most, so that no answer is read many times
        whole, newline, line = inner.rpartition("\n")
        inner = whole.rstrip() if newline and _CLOSINGS[begun is not None].fullmatch(line) else inner
    for pattern in _AROUND:
        inner = found[1].strip() if (found := pattern.fullmatch(inner)) else inner
    if not (wrapped := inner != text.strip()):
        inner = text
    first, middle, last = inner.strip()[:1], inner.strip()[1:-1], inner.strip()[-1:]
    if middle and first + last in QUOTES and not {first, last} & set(re.sub(r"(?<=\w)['’](?=\w)", "", middle)):
        inner = middle.strip()
    return inner, wrapped
