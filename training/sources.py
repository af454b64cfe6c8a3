"""Where the writer's training texts come from: public sets under licences that allow it, each by commit and hash.

Every reader gives texts with the names of their kind, of which a pair shows one, and a label where the set has one.
``README.md`` beside this file names licences and authors.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

csv.field_size_limit(10**8)


@dataclass(frozen=True)
class Text:
    """A public text, the names of its kind, and what it is about, where that is known."""

    text: str
    kinds: tuple[str, ...]
    label: str = ""


@dataclass(frozen=True)
class Source:
    """A set of texts in a repository at a commit.

    Attributes:
        paths: a regular expression of the files that are read.
        sha256: over these files, in order.
        pieces: how many pieces of its texts are taken.
        added: in which round of training it came in.
    """

    name: str
    repository: str
    commit: str
    paths: str
    licence: str
    authors: str
    pieces: int
    read: Callable[[str, bytes], Iterator[Text]]
    sha256: str
    added: int = 1

    def texts(self, mirrors: Path) -> Iterator[Text]:
        """Its texts, from a clone in ``mirrors``; a ValueError where the files are others than those trained on."""
        git = ["git", "--git-dir", str(git_dir(mirrors, self.repository))]
        names = subprocess.run([*git, "ls-tree", "-r", "--name-only", self.commit], capture_output=True, check=True)
        chosen = [name for name in names.stdout.decode().splitlines() if re.fullmatch(self.paths, name)]
        digest, files = hashlib.sha256(), []
        for name in chosen:
            shown = subprocess.run([*git, "show", f"{self.commit}:{name}"], capture_output=True, check=True)
            digest.update(shown.stdout)
            files.append((name, shown.stdout))
        if digest.hexdigest() != self.sha256:
            raise ValueError(f"{self.name}: the files are not those that the writer was trained on.")
        for name, content in files:
            yield from self.read(name, content)


def git_dir(mirrors: Path, repository: str) -> Path:
    """The clone of ``repository`` in ``mirrors``: a folder OWNER+NAME, bare or not; cloned from GitHub if missing."""
    folder = mirrors / repository.replace("/", "+")
    if not folder.exists():
        url = f"https://github.com/{repository}.git"
        subprocess.run(["git", "clone", "--quiet", "--bare", url, str(folder)], check=True)
    return next(each for each in (folder / "repo" / ".git", folder / "repo", folder) if (each / "HEAD").exists())


def _rows(content: bytes, delimiter: str = ",") -> Iterator[dict[str, str]]:
    yield from csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=delimiter)


def _coffee(_name: str, content: bytes) -> Iterator[Text]:
    turns = ("message to a coffee shop", "order", "customer message", "chat message")
    for dialogue in json.loads(content):
        said = [(each["speaker"], each["text"].strip()) for each in dialogue["utterances"]]
        yield from (Text(text, turns) for speaker, text in said if speaker == "user" and len(text.split()) > 4)
        spoken = ["customer" if speaker == "user" else "agent" for speaker, _ in said]
        for start in range(0, len(said) - 3, 4):
            lines = [f"{who}: {text}" for who, (_, text) in zip(spoken[start:], said[start : start + 4], strict=False)]
            yield Text("\n".join(lines), ("dialogue between customer and agent", "chat between customer and agent"))


def _tickets(_name: str, content: bytes) -> Iterator[Text]:
    for line in content.decode().splitlines():
        before, after = line.split("\t")[:2]
        if asked := re.findall(r"<U>([^<]*)(?=<|$)", before):
            yield Text(asked[-1].strip(), ("message to a cinema", "customer message", "request to an assistant"))
        if after.startswith("[A]"):
            yield Text(after[3:].strip(), ("answer of a service agent", "reply to a customer", "message"))


def _assistant(_name: str, content: bytes) -> Iterator[Text]:
    for row in csv.reader(io.StringIO(content.decode()), delimiter=","):
        if len(row) >= 2 and len(row[0].split()) > 3:
            kinds = ("request to an assistant", "voice command", "message to an assistant", "utterance")
            yield Text(row[0], kinds, row[1].replace("_", " "))


def _nlupp(name: str, content: bytes) -> Iterator[Text]:
    domain = "bank" if "banking" in name else "hotel"
    kinds = (f"message to a {domain}", "customer question", "customer message", f"request to a {domain}")
    for each in json.loads(content):
        yield Text(each["text"], kinds, ", ".join(each.get("intents", ())[-1:]).replace("_", " "))


def _snips(name: str, content: bytes) -> Iterator[Text]:
    kinds = ("request to an assistant", "voice command", "search request")
    label = re.sub(r"(?<!^)(?=[A-Z])", " ", Path(name).parts[1]).lower()
    for entries in json.loads(content.decode("utf-8", "replace")).values():
        for each in entries:
            yield Text("".join(part["text"] for part in each["data"]).strip(), kinds, label)


def _questions(_name: str, content: bytes) -> Iterator[Text]:
    for each in json.loads(content):
        text = each["qText"][:1].upper() + each["qText"][1:]
        yield Text(text, ("question", "search question", "trivia question"))


def _medical(_name: str, content: bytes) -> Iterator[Text]:
    tree = ElementTree.fromstring(content)
    focus = (tree.findtext("Focus") or "").strip()
    for pair in tree.iter("QAPair"):
        question, answer = pair.find("Question"), (pair.findtext("Answer") or "").strip()
        if question is not None and question.text:
            yield Text(question.text.strip(), ("medical question", "question of a patient", "question"), focus)
        if answer:
            yield Text(answer, ("medical answer", "health advice", "patient information"), focus)


def _clinic(_name: str, content: bytes) -> Iterator[Text]:
    for row in _rows(content):
        yield Text(row["section_text"], ("clinical note", "note of a doctor", "medical record"))
        lines = [line.strip() for line in row["dialogue"].splitlines() if line.strip()]
        for start in range(0, len(lines) - 1, 4):
            yield Text("\n".join(lines[start : start + 4]), ("dialogue between Doctor and Patient",))


def _abstracts(_name: str, content: bytes) -> Iterator[Text]:
    for line in content.decode().splitlines():
        yield Text(" ".join(json.loads(line)["source"]), ("abstract", "scientific abstract", "abstract of a paper"))


def _meetings(_name: str, content: bytes) -> Iterator[Text]:
    for line in content.decode().splitlines():
        meeting = json.loads(line)
        for each in (*meeting["general_query_list"], *meeting["specific_query_list"]):
            yield Text(each["answer"], ("minutes of a meeting", "report", "summary of a meeting"))
            yield Text(each["query"], ("question about a meeting", "question", "request"))


_CALM = {27, 0, 1, 4, 5, 6, 7, 8, 13, 15, 17, 18, 20, 22, 23, 26}  # neutral and friendly emotions


def _posts(_name: str, content: bytes) -> Iterator[Text]:
    for line in content.decode().splitlines():
        text, labels, _ = line.split("\t")
        if {int(each) for each in labels.split(",")} <= _CALM and "[" not in text:
            yield Text(text, ("short post", "comment", "social media post", "comment in a forum"))


def _countries(_name: str, content: bytes) -> Iterator[Text]:
    country = json.loads(content)

    def walk(node: object, title: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, dict):
            if isinstance(text := node.get("text"), str):
                yield title, html.unescape(re.sub(r"<[^>]+>", " ", text))
            for name, each in node.items():
                yield from walk(each, name)

    for title, text in walk(country, ""):
        if len(text.split()) > 12 and text.rstrip().endswith("."):
            yield Text(text, ("encyclopedia entry", "description", "encyclopedia article", "report"), title.lower())


def _reviews(name: str, content: bytes) -> Iterator[Text]:
    product = ("review", "product review", "customer review")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in sorted(archive.namelist()):
            if not member.endswith(".txt") or "readme" in member.lower():
                continue
            raw = archive.read(member).decode("latin-1")
            if "pros_cons" in name:
                opinion = "advantages" if "Pros" in member else "disadvantages"
                for text in re.findall(r"<(?:Pros|Cons)>(.*?)</", raw):
                    if len(text.split()) > 7:
                        yield Text(text.strip(), ("short review", "review", "opinion"), opinion)
                continue
            for review in re.split(r"^\[t\].*$", raw, flags=re.MULTILINE):
                lines = [line.split("##", 1)[1].strip() for line in review.splitlines() if "##" in line]
                yield Text(_joined(" ".join(line[:1].upper() + line[1:] for line in lines if line)), product)


_GENRES = {
    "blog": ("blog post", "post", "personal story"),
    "essays": ("essay", "text"),
    "ficlets": ("story", "text"),
    "fiction": ("story", "text"),
    "govt-docs": ("report", "official document", "article"),
    "jokes": ("joke", "anecdote"),
    "journal": ("article", "magazine article"),
    "letters": ("letter", "appeal"),
    "newspaper": ("news item", "newspaper article", "news report"),
    "non-fiction": ("article", "text"),
    "technical": ("abstract", "report", "article"),
    "travel-guides": ("travel guide", "description of a place", "article"),
}


def _masc(_name: str, content: bytes) -> Iterator[Text]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        listed = archive.read("masc_tagged/categories.txt").decode().splitlines()
        for name, genre in (line.split()[:2] for line in listed if len(line.split()) >= 2):
            if genre in _GENRES and f"masc_tagged/{name}" in archive.namelist():
                tagged = archive.read(f"masc_tagged/{name}").decode("utf-8", "replace")
                words = " ".join(word.rpartition("_")[0] for word in tagged.split())
                yield Text(_joined(words), _GENRES[genre])


def _opinions(_name: str, content: bytes) -> Iterator[Text]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in sorted(archive.namelist()):
            if not member.endswith(".txt.data"):
                continue
            aspect, _, thing = Path(member).name.removesuffix(".txt.data").partition("_")
            place = re.search("hotel|inn|chicago", thing)
            kinds = ("review of a business", "review of a hotel") if place else ("product review",)
            for line in archive.read(member).decode("latin-1").splitlines():
                text = re.sub(r"(?:\s*,)+\s*", ", ", _joined(" ".join(line.split()))).strip(" ,")
                yield Text(text, (*kinds, "review", "customer review"), aspect.replace("-", " ").lower())


def _speeches(_name: str, content: bytes) -> Iterator[Text]:
    kinds = ("speech", "speech to a parliament", "speech of a politician", "statement in a debate")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in sorted(archive.namelist()):
            if member.endswith(".txt"):
                for paragraph in archive.read(member).decode("latin-1").splitlines()[3:]:
                    text = re.sub(r"\s*\[[^\]]*\]", "", paragraph).strip()
                    if text.endswith((".", "!", "?")):
                        yield Text(text, kinds)


def _studies(_name: str, content: bytes) -> Iterator[Text]:
    kinds = ("medical abstract", "abstract", "abstract of a medical paper", "scientific abstract")
    for study in json.loads(content).values():
        for text in (*study["CONTEXTS"], study["LONG_ANSWER"]):
            if "[" not in text:
                yield Text(text, kinds)


def _joined(words: str) -> str:
    """Words as a tagger parts them, joined as people write."""
    words = words.replace("``", '"').replace("''", '"')
    words = re.sub(r"\s*’\s*", "'", re.sub(r"\bi\b", "I", words))
    words = re.sub(r"\s+([.,;:!?%)\]]|n't\b|'(?:s|re|ve|ll|d|m)\b)", r"\1", words)
    return re.sub(r"([(\[$])\s+", r"\1", re.sub(r'"\s+([^"]*?)\s+"', r'"\1"', words))


SOURCES = (
    Source(
        "Taskmaster-4",
        "google-research-datasets/Taskmaster",
        "d92cb6af3005f1dc09c39e75e7daf4a04905e00b",
        r"TM-4-2024/data/data_0[0-2]\.json",
        "CC BY 4.0",
        "Bill Byrne, Saravanan Ganesh (Google)",
        2900,
        _coffee,
        "08dd3aaf770ffbaf567c033340a24f9e11af50460f576f4aa150dbb0a1524f72",
    ),
    Source(
        "Taskmaster-3",
        "google-research-datasets/Taskmaster",
        "d92cb6af3005f1dc09c39e75e7daf4a04905e00b",
        r"TM-3-2020/splits/train/train-bc\.tsv",
        "CC BY 4.0",
        "Bill Byrne and others (Google)",
        1800,
        _tickets,
        "d2cbf4e535edeb574a8aaec4483b0cee529e1fa8a7df8dfc27f2835061322e2b",
    ),
    Source(
        "NLU evaluation data",
        "xliuhw/NLU-Evaluation-Data",
        "f6071b496b17d71e6eb43f543af0707f4ff30557",
        r"CrossValidation/out4WatsonReal/.*KFold_1/merged/intents/.*\.csv",
        "CC BY 4.0",
        "Xingkun Liu, Arash Eshghi, Pawel Swietojanski, Verena Rieser",
        8600,
        _assistant,
        "62b369e5aa52e312908c872dd78a31dd25c3d86c6bcc344c5da084a1e4f957d0",
    ),
    Source(
        "NLU++",
        "PolyAI-LDN/task-specific-datasets",
        "57ec275d8078af65b7731c2a98be812d844a6d6b",
        r"nlupp/data/(banking|hotels)/fold\d+\.json",
        "CC BY 4.0",
        "Iñigo Casanueva and others (PolyAI)",
        2600,
        _nlupp,
        "65e6d2847a2d679de3424f1499294bc76754a990a4cc2d39248bfce895763c61",
    ),
    Source(
        "Snips 2017",
        "snipsco/nlu-benchmark",
        "b86ac7f1577868c42158d0dec77db50956046696",
        r"2017-06-custom-intent-engines/\w+/train_\w+_full\.json",
        "CC0 1.0",
        "Snips",
        4000,
        _snips,
        "97d4d71961ee2de22798bc7c4b08d950a0e482971d62b1ec2e9d31a6772e3444",
    ),
    Source(
        "WebQuestions",
        "brmson/dataset-factoid-webquestions",
        "668890853388010fe6ae9a5eb035a7917b88933b",
        r"main/(trainmodel|val|devtest)\.json",
        "CC BY 4.0",
        "Jonathan Berant and others",
        3600,
        _questions,
        "05dce1442f5362dc455b27c29447343c576197f26ab0dd0f841353333d6cc680",
    ),
    Source(
        "MedQuAD",
        "abachaa/MedQuAD",
        "577bd37b96c02d1833b2c9eed2de9f96964e96cb",
        r"(1|4|5|6|7|8|9)_\w+/.*\.xml",
        "CC BY 4.0",
        "Asma Ben Abacha, Dina Demner-Fushman",
        9000,
        _medical,
        "9bd8b2d7cc9f633608e450adf45d20db99af62955dca2ef73e4deb7763a4b1d1",
    ),
    Source(
        "MTS-Dialog",
        "abachaa/MTS-Dialog",
        "3ff0801933608d6f570468c13125125fb5cabdea",
        r"Main-Dataset/MTS-Dialog-TrainingSet\.csv",
        "CC BY 4.0",
        "Asma Ben Abacha and others",
        4600,
        _clinic,
        "65a28681dd59fc159681ea026e44610f2af7bc64a0e7f892d763eb03d9f503dc",
    ),
    Source(
        "SciTLDR",
        "allenai/scitldr",
        "5ccad9c00a60ad75c9e04abf7f27d0f53f983b20",
        r"SciTLDR-Data/SciTLDR-A/train\.jsonl",
        "Apache 2.0",
        "Isabel Cachola and others (AI2)",
        5400,
        _abstracts,
        "b222771d387be585cfdf5ae957b36757138415a352e0a3e3b23f73f87c3b1119",
    ),
    Source(
        "QMSum",
        "Yale-LILY/QMSum",
        "83d7768c1f2b4dfeb091385d3dc7e239b8e5bb7e",
        r"data/(Committee|Academic)/jsonl/train\.jsonl",
        "MIT",
        "Ming Zhong and others",
        1500,
        _meetings,
        "25051eb5e78d0252c4d1253a558f4555957a46c49da594217eb11a5bcaa4cf07",
    ),
    Source(
        "GoEmotions",
        "monologg/GoEmotions-pytorch",
        "b75f9d3a8b76bc1060687925b04ca98a1b8ea66b",
        r"data/original/train\.tsv",
        "Apache 2.0",
        "Dorottya Demszky and others (Google)",
        7000,
        _posts,
        "1c254a142be5c00e80d819b9ae1bbd36d94b2eeb8f4b1271846508d57e57d9c5",
    ),
    Source(
        "The World Factbook",
        "factbook/factbook.json",
        "8662a8b17a784841ab4528631b04090eb2f183eb",
        r"(?!meta)[a-z-]+/\w\w\.json",
        "public domain",
        "Central Intelligence Agency",
        1250,
        _countries,
        "de1152dc860c3327523b0acb656a62683bea4910a0ac29d2b2391e7ab9896719",
    ),
    Source(
        "Product reviews",
        "nltk/nltk_data",
        "5db857e6f7df11eabb5e5665836db9ec8df07e28",
        r"packages/corpora/product_reviews_[12]\.zip",
        "CC BY 4.0",
        "Bing Liu, Minqing Hu",
        3250,
        _reviews,
        "51812451c04d7ea4620a53b004ca640513739d5c1491dbc746df389ad078f41b",
    ),
    Source(
        "Pros and cons",
        "nltk/nltk_data",
        "5db857e6f7df11eabb5e5665836db9ec8df07e28",
        r"packages/corpora/pros_cons\.zip",
        "CC BY 4.0",
        "Bing Liu",
        3000,
        _reviews,
        "b5bca541ba5b2e614cde2213ddcca027416f6997067c90e45c173bf55c6fade8",
    ),
    Source(
        "MASC",
        "nltk/nltk_data",
        "5db857e6f7df11eabb5e5665836db9ec8df07e28",
        r"packages/corpora/masc_tagged\.zip",
        "free for any use, also commercial",
        "American National Corpus",
        5200,
        _masc,
        "678a5141cf3381bedb1839c58a330507337be07c7c71603279c0ef5337032304",
    ),
    Source(
        "Opinosis",
        "kavgan/opinosis-summarization",
        "7e351ea7cc38402134fded1e157710e12692c978",
        r"OpinosisDataset1\.0_0\.zip",
        "CC BY 4.0",
        "Kavita Ganesan, ChengXiang Zhai, Jiawei Han",
        5500,
        _opinions,
        "ed0be6c80fe32e9071ddd7fbb7a272fea7efa39b6b3fa77aa1460c7b81026547",
        added=2,
    ),
    Source(
        "State of the Union",
        "nltk/nltk_data",
        "5db857e6f7df11eabb5e5665836db9ec8df07e28",
        r"packages/corpora/state_union\.zip",
        "public domain",
        "presidents of the United States",
        3000,
        _speeches,
        "366c1dc82b2abf896f42b2ec50ba802a0141a29f75d29ca48a7a243ce5bfbe8d",
        added=2,
    ),
    Source(
        "PubMedQA",
        "pubmedqa/pubmedqa",
        "1cbae8e92f72f20c8d3747cbb3bf5bc53554d997",
        r"data/ori_pqal\.json",
        "MIT",
        "Qiao Jin and others",
        3500,
        _studies,
        "8b3276be8942ebbd77f3ddcda12c1749bf0e490045a736fd8438ee40cf37a41d",
        added=2,
    ),
)
