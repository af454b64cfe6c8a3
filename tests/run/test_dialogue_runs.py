"""Runs on texts that have parts: several columns of one row, and dialogues."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clinic import FakeChat, in_format, settings, write_csv
from evolution_fixtures import Counting, WordEmbedder, evolving
from run_fixtures import UseChat, release, run, runs_charged

import understudy as us
from understudy.base.errors import ConfigError, CorpusError
from understudy.methods.additions.columns.rows import TableRows
from understudy.models.types import ChatRequest, Completion
from understudy.models.vectors import ContentsEmbedder, uncached
from understudy.schema.transcript import Part, TextForm
from understudy.text.records import SyntheticRecord
from understudy.text.writing import MOST_TRIES, NoText

LABELS = "router,phone"
ROLES = ("customer", "agent")
WORDS = [*ROLES, "subject", "message", "answer", "router", "signal", "phone", "screen", "broken", "monday", "send"]
SAYS = {"router": "The router drops the signal.", "phone": "The phone has a broken screen."}


def dialogue(number: int, about: str) -> list[dict[str, str]]:
    said = [SAYS[about], "Since when?\nTell me.", "Since Monday.", "We send a new one."]
    return [{"role": ROLES[place % 2], "content": content} for place, content in enumerate(said[: 2 + number % 3])]


def write_table(path: Path, count: int = 200) -> Path:
    """Dialogues and tickets of two products."""
    products = [("router", "phone")[number % 2] for number in range(count)]
    made = [
        {
            "product": product,
            "messages": dialogue(number, product),
            "subject": f"A {product}",
            "message": SAYS[product],
            "answer": None if number % 5 == 0 else "We send a new one.",
        }
        for number, product in enumerate(products)
    ]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(made), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in made))
    else:
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, [*made[0]])
            writer.writeheader()
            writer.writerows({**row, "messages": json.dumps(row["messages"])} for row in made)
    return path


def values(folder: Path, *, data: Path | None = None, **changes: Any) -> dict[str, Any]:
    data = write_table(folder / "table.parquet") if data is None else data
    (folder / "terms.txt").write_text("\n".join(WORDS))
    own = {"data": str(data), "label": "product", "labels": LABELS, "records_per_label": 3}
    return settings(folder, **{**own, "insecure_noise_seed": 1, "top_terms": 5, **changes})


TALK = {"text": "messages", "roles": "customer,agent"}
TICKET = {"text": "subject,message,answer"}
SPOKEN = "Here you are:\n\nCustomer: My router is slow.\n\n**Agent:** Since when?\nCustomer: Since Monday."
WRITTEN = "Subject: Slow\nmessage: My router is slow.\nIt was fast.\nANSWER: We send a new one."


def says(text: str) -> FakeChat:
    """Says one thing."""
    return FakeChat(lambda _request: Completion(text, "stop", 9, 9))


@pytest.mark.parametrize("name", ["table.parquet", "table.jsonl", "table.csv"])
def test_dialogues_are_read_asked_for_and_written_as_such(tmp_path: Path, use_chat: UseChat, name: str) -> None:
    chat = use_chat(says(SPOKEN))
    result = run(values(tmp_path, data=write_table(tmp_path / name), llm="fake", **TALK))
    turns = [("customer", "My router is slow."), ("agent", "Since when?"), ("customer", "Since Monday.")]
    expected = [{"role": role, "content": content} for role, content in turns]
    table = pq.read_table(tmp_path / "out" / "release" / "synthetic.parquet")
    columns = ["messages", "product"] if name.endswith("jsonl") else ["product", "messages"]  # those have no header
    assert table.column_names == columns
    assert table["messages"].to_pylist() == [expected] * 6
    assert str(table.schema.field("messages").type) == "list<element: struct<role: string, content: string>>"
    assert all("dialogue between customer and agent" in request.messages[-1].content for request in chat.asked)
    assert "customer: " in chat.asked[0].messages[2].content
    assert {"router", "screen"} <= set(result.release.terms)
    assert not set(ROLES) & set(result.release.terms)
    again = us.load_release(tmp_path / "out" / "release" / "dp-kps.release")
    assert (again.schema, again.schema.text, again.schema.form.roles) == (result.release.schema, "messages", ROLES)


def test_several_texts_are_written_together(tmp_path: Path, use_chat: UseChat) -> None:
    use_chat(says(WRITTEN))
    made = run(values(tmp_path, llm="fake", **TICKET)).release
    table = pq.read_table(tmp_path / "out" / "release" / "synthetic.parquet")
    assert table.column_names == ["product", "subject", "message", "answer"]
    assert table.to_pylist()[0]["message"] == "My router is slow.\nIt was fast."
    assert {"router", "screen"} <= set(made.terms)
    assert not {"subject", "message", "answer"} & set(made.terms), "no name of a field is released"


@pytest.mark.parametrize("text", ["A text.", "agent:", ""])
def test_what_is_no_transcript_is_asked_again_and_not_written(tmp_path: Path, use_chat: UseChat, text: str) -> None:
    chat = use_chat(says(text))
    with pytest.raises(NoText):
        run(values(tmp_path, llm="fake", records_per_label=1, **TALK))
    assert len(chat.asked) in (2, 2 * (1 + MOST_TRIES))
    assert not (tmp_path / "out" / "release" / "synthetic.parquet").exists()


def test_a_synthetic_table_is_evaluated_by_its_parts(tmp_path: Path, use_chat: UseChat) -> None:
    use_chat(says(SPOKEN))
    run(values(tmp_path, llm="fake", **TALK))
    made = us.evaluate(tmp_path / "table.parquet", tmp_path / "out", embedder="none", metrics="fidelity,leakage")
    assert made.values
    (paths,) = us.report(tmp_path / "out")
    assert "Since when?" in paths.shareable.read_text("utf-8")


BAD = [
    ({"text": "messages"}, "roles"),
    ({"text": "messages", "roles": "customer"}, "not declared"),
    ({"text": "subject", "roles": "customer,agent"}, "not a list of turns"),
    ({"text": "subject,message", "roles": "customer,agent"}, "roles"),
    ({"text": "subject,messages"}, "not of a string type"),
    ({"text": "subject,subject"}, "same name"),
    ({"text": "subject,"}, "no printable name"),
    ({"text": "subject,nothing"}, "'nothing'"),
    ({"text": "subject,product"}, "the text itself"),
    ({**TALK, "record_columns": "subject,answer"}, "record columns"),
    ({"text": None, "roles": "customer,agent"}, "text column"),
    ({**TALK, "json_schema": __file__}, "JSON schema"),
    ({**TALK, "llm": "none", "records_per_label": 1}, "language model"),
    ({**TALK, "columns": "begins=customer|agent", "label": "begins", "labels": None}, "part of the label"),
]


@pytest.mark.parametrize(("changes", "said"), BAD)
def test_bad_settings_are_told_before_anything_is_charged(
    tmp_path: Path, use_chat: UseChat, changes: dict[str, Any], said: str
) -> None:
    use_chat(FakeChat())
    with pytest.raises((ConfigError, CorpusError)) as caught:
        run(values(tmp_path, **{"llm": "fake", **changes}))
    assert said in str(caught.value)
    assert not runs_charged(tmp_path / "ledger.sqlite")


# -- what is told from a dialogue -------------------------------------------------------------------------------------

TOLD = {**TALK, "columns": "turns=1..6; begins=customer|agent"}


@pytest.mark.usefixtures("quick_fit")
def test_turns_and_who_begins_are_columns_told_from_the_dialogue(tmp_path: Path, use_chat: UseChat) -> None:
    chat = use_chat(says(SPOKEN))
    run(values(tmp_path, llm="fake", **TOLD, records_per_label=30, epsilon="8"))
    table = pq.read_table(tmp_path / "out" / "release" / "synthetic.parquet")
    told = pq.read_table(tmp_path / "out" / "release" / "provenance.parquet")
    assert not {"turns", "begins"} & set(table.column_names), "they are not in the private table"
    assert str(told.schema.field("turns").type) == "int64"
    assert told["turns"].to_pylist() == [len(each) for each in table["messages"].to_pylist()]
    assert set(told["begins"].to_pylist()) == {"customer"}
    assert {2, 3} <= set(told["turns"].to_pylist()) <= {1, 2, 3}  # what is longer than asked for is cut
    assert all(request.messages[-1].content.startswith("Details: turns: ") for request in chat.asked)


@pytest.mark.usefixtures("quick_fit")
def test_what_a_dialogue_tells_meets_the_condition_or_it_is_left_out(tmp_path: Path, use_chat: UseChat) -> None:
    use_chat(says(SPOKEN))
    made = release(values(tmp_path, **TOLD, records_per_label=None))
    kept = us.generate(made, llm="fake", records_per_label=5, where="turns=3")
    assert [record.columns for record in kept.records] == [(3, "customer")] * 10
    with pytest.raises(NoText, match="condition"):
        us.generate(made, llm="fake", records_per_label=5, where="turns=4..6")


def test_columns_that_cannot_be_told_are_refused() -> None:
    for columns, said in {
        "turns=few|many": "not declared as a whole number",
        "calls.search=0..2": "tools does not declare 'search'",
        "turns.ask=0..2": "acts does not declare 'ask'",
        "turns=0.5..9.5": "not declared as a whole number",
        "begins=customer|bot": "not the roles",
        "begins": "not the roles",
        "transcript=1..6": "transcript",
        "messages=1..6": "messages",
    }.items():
        with pytest.raises((ConfigError, CorpusError), match=said):
            us.read_corpus([{"messages": []}], text="messages", roles=ROLES, columns=f"{columns}; x")


def test_a_last_act_needs_declared_acts(tmp_path: Path) -> None:
    talks = tmp_path / "talks.jsonl"
    talks.write_text(json.dumps({"messages": [{"role": "customer", "content": "Hello?"}], "product": "router"}) + "\n")
    with pytest.raises(CorpusError, match="No row has the column 'ends'") as caught:
        release(values(tmp_path, data=talks, **TALK, columns="ends=ask|offer"))
    assert "--acts" in caught.value.cure


@pytest.mark.usefixtures("quick_fit")
def test_a_dialogue_that_was_written_for_no_row_gets_one_that_goes_with_it(tmp_path: Path) -> None:
    columns = "turns=1..6; begins=customer|agent; answered=long|short"
    made = [
        {"product": "phone", "messages": dialogue(2 * (number % 2), "phone"), "answered": ("short", "long")[number % 2]}
        for number in range(200)
    ]
    pq.write_table(pa.Table.from_pylist(made), tmp_path / "talks.parquet")
    settings = values(tmp_path, data=tmp_path / "talks.parquet", **{**TALK, "columns": columns}, records_per_label=None)
    released = release(settings, epsilon="8", column_pairs="turns*answered")
    rows = TableRows.of(released, seed=0)
    assert rows is not None
    text = released.schema.form.render([Part(ROLES[place % 2], "Yes.") for place in range(4)])
    found = [rows.completed(SyntheticRecord(text, 1, {})) for _ in range(40)]
    assert all(each is not None and each.columns is not None and each.columns[:2] == (4, "customer") for each in found)
    assert sum(each.columns[2] == "long" for each in found if each and each.columns) > 30


# -- acts, and calls of tools -----------------------------------------------------------------------------------------

BOOKING = {"text": "messages", "roles": "user,assistant", "acts": "ask,offer,thank", "tools": "search,book"}
SHAPE = "turns=1..8; ends=ask|offer|thank; turns.offer=0..3; calls.search=0..2; calls.book=0..2"
BOOKED = """**User (ask):** Is my {thing} there?
assistant calls search: {{"thing": "{thing}"}}
assistant calls book: {{"day": 3}}
search returns: yes
book returns:
Assistant (offer): Come on Monday.
user (thank): Fine."""


def booking(number: int, about: str) -> list[dict[str, Any]]:
    """A dialogue as chat tables have it: every other one calls a tool."""
    function = {"name": "search", "arguments": json.dumps({"thing": f"{about} screen"})}
    called = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "x", "content": "signal found"},
    ]
    return [
        {"role": "user", "content": SAYS[about], "act": "ask"},
        *called[: 2 * (number % 2)],
        {"role": "assistant", "content": "We send a new one.", "act": "offer" if number % 3 else None},
    ]


def write_bookings(path: Path, count: int = 200) -> Path:
    products = [("router", "phone")[number // 2 % 2] for number in range(count)]
    rows = [{"product": each, "messages": booking(number, each)} for number, each in enumerate(products)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def bookings(folder: Path, **changes: Any) -> dict[str, Any]:
    return values(folder, data=write_bookings(folder / "talks.jsonl"), **{"llm": "fake", **BOOKING, **changes})


def replies(request: Any) -> Completion:
    thing = "router" if "router" in request.messages[-1].content else "phone"
    return Completion(BOOKED.format(thing=thing), "stop", 9, 9)


@pytest.mark.usefixtures("quick_fit")
@pytest.mark.parametrize("output_format", ["parquet", "csv", "jsonl"])
def test_acts_and_calls_are_asked_for_and_read_again(tmp_path: Path, use_chat: UseChat, output_format: str) -> None:
    chat = use_chat(FakeChat(replies))
    settings = bookings(tmp_path, columns=SHAPE, epsilon="8", records_per_label=4)
    result = run(settings)
    asked = chat.asked[0]
    assert 'assistant calls search: {"query": "..."}\nsearch returns: ...\n' in asked.messages[-1].content
    assert "does: ask, offer, thank.\n" in asked.messages[-1].content
    assert asked.messages[-1].content.startswith("Details: turns: ")
    assert asked.messages[-1].content.endswith("The tools: search, book.")
    example = result.release.schema.form.parse(asked.messages[2].content)
    assert example is not None
    assert {part.tool for part in example} == {"", "search"}
    assert {part.act for part in example} == {"", "ask", "offer", "thank"}
    table = in_format(settings, output_format)
    corpus = us.read_corpus(table, text="messages", roles="user,assistant", acts="ask,offer,thank", tools="search,book")
    texts = [text for batch in corpus.batches() for text in batch.texts]
    assert texts == [record.text for record in result.records]
    schema = us.load_release(tmp_path / "out" / "release" / "dp-kps.release").schema
    assert schema == result.release.schema
    assert schema.texts == {
        **{"text": ["messages"], "roles": ["user", "assistant"]},
        **{"acts": ["ask", "offer", "thank"], "tools": ["search", "book"]},
    }
    columns = result.columns
    told = [result.release.schema.form.tell(text) for text in texts]
    assert len(told) == 8
    for name in ("turns", "ends", "turns.offer", "calls.search", "calls.book"):
        assert result.provenance[name] == [each[name] for each in told]
    longest = max(columns["messages"], key=len)  # type: ignore[type-var, arg-type]
    assert longest[1]["content"] is None  # type: ignore[index]
    assert [call["id"] for call in longest[1]["tool_calls"]] == ["call_1", "call_2"]  # type: ignore[index]
    assert not {"search", "book", "assistant", "user"} & set(result.release.terms)
    assert {"router", "screen", "signal"} <= set(result.release.terms), "what calls and answers say is counted"


@pytest.mark.usefixtures("quick_fit")
def test_a_table_with_calls_is_evaluated_reported_and_exported(tmp_path: Path, use_chat: UseChat) -> None:
    use_chat(FakeChat(replies))
    run(bookings(tmp_path, columns=SHAPE, epsilon="8"))
    made = us.evaluate(tmp_path / "talks.jsonl", tmp_path / "out", embedder="none", metrics="fidelity,leakage")
    found = {value.metric.name: value.value for value in made.values if value.of == "synthetic"}
    assert found["calls_distance"] == pytest.approx(0.5, abs=0.5)
    assert found["acts_distance"] is not None
    (paths,) = us.report(tmp_path / "out")
    assert "calls search" in paths.shareable.read_text("utf-8")
    path = us.export(tmp_path / "out", to="chat", output=tmp_path / "not-private.jsonl")
    chats = path.read_text("utf-8").splitlines()
    roles = [[message["role"] for message in json.loads(line)["messages"]] for line in chats]
    assert ["user", "assistant", "tool", "tool"] in [each[:4] for each in roles]
    assert all("act" not in message for line in chats for message in json.loads(line)["messages"])
    dataset = us.export(tmp_path / "out", to="huggingface", output=tmp_path / "dataset")
    table = pq.read_table(dataset / "data" / "train-00000-of-00001.parquet")
    assert table["messages"].type == us.load_release(tmp_path / "out").schema.form.arrow_type()


BAD_USES = [
    ({"acts": "ask"}, "an act that is not declared"),
    ({"acts": ()}, "acts"),
    ({"tools": ()}, "tools"),
    ({"tools": "book"}, "calls a tool that is not declared"),
    ({"roles": "user,assistant,tool"}, "Leave tool out"),
    ({"roles": (), "text": "product"}, "without roles"),
    ({"acts": ["ask", 1]}, "string"),
    ({"columns": "ends=ask|offer"}, "not the acts"),
    ({"columns": "turns.offer"}, "not declared as a whole number"),
    ({"columns": "turns.shout=0..3"}, "turns.shout"),
    ({"columns": "calls.fly=0..3"}, "calls.fly"),
]


@pytest.mark.parametrize(("changes", "said"), BAD_USES, ids=range(len(BAD_USES)))
def test_bad_acts_and_tools_are_told_before_anything_is_charged(
    tmp_path: Path, use_chat: UseChat, changes: dict[str, Any], said: str
) -> None:
    use_chat(FakeChat(replies))
    with pytest.raises((ConfigError, CorpusError)) as caught:
        run(bookings(tmp_path, **changes))
    assert said in str(caught.value)
    assert not runs_charged(tmp_path / "ledger.sqlite")


def test_a_release_of_plain_dialogues_is_written_as_before(tmp_path: Path) -> None:
    made = release(values(tmp_path, records_per_label=None, **TALK))
    assert made.schema.to_json()["form"] == {"fields": [], "roles": list(ROLES)}


def test_the_private_vocabulary_of_json_records_holds_no_key(tmp_path: Path) -> None:
    table = [{"title": "Chest", "body": "pain at night"}] * 5 + [{"title": "Knee", "body": "pain"}]
    write_csv(tmp_path / "notes.csv", table, ("title", "body"))
    (tmp_path / "terms.txt").write_text("title\nbody\nchest\npain\nnight\nknee\n")
    own = {"text": None, "label": None, "labels": None, "records_per_label": None, "record_columns": "title,body"}
    budget = {"epsilon": "10000", "delta": "0", "noise": "laplace", "insecure_noise_seed": 1}
    values = settings(tmp_path, **own, **budget, top_terms=3, length=2, terms_per_record=3)
    assert set(release(values).terms) == {"chest", "pain", "night"}


# -- methods that evolve texts: blanks, embeddings and candidates ------------------------------------------------------


def talks(request: ChatRequest) -> Completion:
    """A dialogue, another for every request; now and then none."""
    key = int(request.key("talks")[:8], 16)
    if key % 7 == 0:
        return Completion("No dialogue at all.", "stop", 9, 9)
    thing = ("router", "phone")[key % 2]
    return Completion(f"Customer: My {thing} {key % 1000} fails.\nAgent: Since when?", "stop", 9, 9)


@pytest.fixture
def chat(use_chat: UseChat) -> FakeChat:
    return use_chat(FakeChat(talks))


def configured(folder: Path, method: str, **changes: Any) -> dict[str, Any]:
    data = write_table(folder / "table.parquet", 60)
    table = {"data": str(data), "label": "product", "labels": LABELS, "epsilon": "20", "insecure_noise_seed": 1}
    return evolving(folder, **{"method": method, **TALK, **table, "records_per_label": 3, **changes})


@pytest.mark.parametrize("method", ["aug-pe", "guided-evolution"])
def test_dialogues_evolve_as_such(tmp_path: Path, embedder: Counting, chat: FakeChat, method: str) -> None:
    result = run(configured(tmp_path, method, blank_probability=0.5))
    assert result.records
    made = us.load_release(tmp_path / "out" / "release" / f"{method}.release")
    assert made.schema.form == TextForm(roles=ROLES)
    assert all(TextForm(roles=ROLES).parse(text) for text in made.strings.get("texts", ()))
    assert all(TextForm(roles=ROLES).parse(record.text) for record in result.records)
    assert {turn["role"] for turns in result.columns["messages"] for turn in turns} == set(ROLES)  # type: ignore[attr-defined]
    filled = [request.messages[-1].content for request in chat.asked if "_ " in request.messages[-1].content]
    assert filled
    assert all("\ncustomer: " in prompt and "\nagent: " in prompt for prompt in filled)
    assert not [text for text in embedder.seen if "customer:" in text.lower()], "names would be in every vector"


def test_an_embedder_of_contents_is_tried_and_told_like_its_own() -> None:
    inner = WordEmbedder()
    made = ContentsEmbedder(inner, TextForm(roles=ROLES))
    assert np.array_equal(made.embed(["agent: Hello"]), inner.embed(["Hello"]))
    assert (made.model_id, made.fingerprint, made.local) == (inner.model_id, inner.fingerprint, True)
    assert getattr(made, "longest", None) == inner.longest
    assert getattr(made, "nothing", None) is None
    assert uncached(made) == made
