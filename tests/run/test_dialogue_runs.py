"""Runs on texts that have parts: several columns of one row, and dialogues."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clinic import FakeChat, in_format, settings
from run_fixtures import runs_charged
from test_table_runs import simple_fit

import understudy as us
from understudy.base.errors import ConfigError, CorpusError
from understudy.base.transcript import Part
from understudy.models.types import Completion
from understudy.run import pipeline as running
from understudy.run import tabling
from understudy.run.settings import run_config
from understudy.text.writing.records import SyntheticRecord
from understudy.text.writing.writer import MOST_TRIES, NoText

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
    return settings(
        folder,
        **{
            "data": str(data),
            "label": "product",
            "labels": LABELS,
            "records_per_label": 3,
            "insecure_noise_seed": 1,
            "top_terms": 5,
        }
        | changes,
    )


TALK = {"text": "messages", "roles": "customer,agent"}
TICKET = {"text": "subject,message,answer"}
SPOKEN = "Here you are:\n\nCustomer: My router is slow.\n\n**Agent:** Since when?\nCustomer: Since Monday."
WRITTEN = "Subject: Slow\nmessage: My router is slow.\nIt was fast.\nANSWER: We send a new one."


def says(text: str) -> FakeChat:
    """Says one thing."""
    return FakeChat(lambda _request: Completion(text, "stop", 9, 9))


@pytest.mark.parametrize("name", ["table.parquet", "table.jsonl", "table.csv"])
def test_dialogues_are_read_asked_for_and_written_as_such(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat], name: str
) -> None:
    chat = use_chat(says(SPOKEN))
    result = running.run(run_config(values(tmp_path, data=write_table(tmp_path / name), llm="fake", **TALK)))
    turns = [("customer", "My router is slow."), ("agent", "Since when?"), ("customer", "Since Monday.")]
    expected = [{"role": role, "content": content} for role, content in turns]
    table = pq.read_table(tmp_path / "out" / "release" / "synthetic.parquet")
    assert table.column_names == ["messages", "transcript", "product", "label", "provenance"]
    assert table["messages"].to_pylist() == [expected] * 6
    assert str(table.schema.field("messages").type) == "list<element: struct<role: string, content: string>>"
    assert all("dialogue between customer and agent" in request.messages[-1].content for request in chat.asked)
    assert "customer: " in chat.asked[0].messages[2].content
    assert {"router", "screen"} <= set(result.release.terms)
    assert not set(ROLES) & set(result.release.terms)


def test_several_texts_are_written_together(tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]) -> None:
    use_chat(says(WRITTEN))
    running.run(run_config(values(tmp_path, llm="fake", **TICKET)))
    table = pq.read_table(tmp_path / "out" / "release" / "synthetic.parquet")
    assert table.column_names == ["subject", "message", "answer", "transcript", "product", "label", "provenance"]
    assert table.to_pylist()[0]["message"] == "My router is slow.\nIt was fast."


def test_the_release_says_what_parts_texts_have(tmp_path: Path) -> None:
    made = running.release(run_config(values(tmp_path, records_per_label=None, **TALK))).release
    again = us.load_release(tmp_path / "out" / "release" / "dp-kps.release")
    assert again.schema == made.schema
    assert again.schema.form.roles == ROLES
    assert again.schema.text == "messages"


def test_no_name_of_a_field_is_released(tmp_path: Path) -> None:
    made = running.release(run_config(values(tmp_path, records_per_label=None, **TICKET))).release
    assert {"router", "screen"} <= set(made.terms)
    assert not {"subject", "message", "answer"} & set(made.terms)


@pytest.mark.parametrize("text", ["A text.", "subject: A\nmessage: B", "agent:", ""])
def test_what_is_no_transcript_is_asked_for_again_and_never_written(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat], text: str
) -> None:
    chat = use_chat(says(text))
    with pytest.raises(NoText):
        running.run(run_config(values(tmp_path, llm="fake", records_per_label=1, **TALK)))
    assert len(chat.asked) in (2, 2 * (1 + MOST_TRIES))
    assert not (tmp_path / "out" / "release" / "synthetic.parquet").exists()


def test_a_synthetic_table_is_evaluated_by_its_parts(tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]) -> None:
    use_chat(says(SPOKEN))
    running.run(run_config(values(tmp_path, llm="fake", **TALK)))
    made = us.evaluate(tmp_path / "table.parquet", tmp_path / "out", embedder="none", metrics="fidelity,leakage")
    assert made.values
    (paths,) = us.report(tmp_path / "out")
    assert "Since when?" in paths.shareable.read_text("utf-8")


BAD = [
    ({"text": "messages"}, "--roles"),
    ({"text": "messages", "roles": "customer"}, "not declared"),
    ({"text": "subject", "roles": "customer,agent"}, "not a list of turns"),
    ({"text": "subject,message", "roles": "customer,agent"}, "--roles"),
    ({"text": "subject,messages"}, "not of a string type"),
    ({"text": "subject,subject"}, "same name"),
    ({"text": "subject,"}, "no name"),
    ({"text": "subject,nothing"}, "'nothing'"),
    ({"text": "subject,product"}, "the text itself"),
    ({"text": "messages", "roles": "a:b,c"}, "cannot stand"),
    ({"text": "messages", "roles": "customer,Customer"}, "same name"),
    ({"text": "messages", "roles": ["customer", 1]}, "string"),
    ({**TALK, "record_columns": "subject,answer"}, "record columns"),
    ({**TICKET, "record_columns": "subject,answer"}, "record columns"),
    ({"text": None, "roles": "customer,agent"}, "text column"),
    ({**TALK, "json_schema": __file__}, "JSON schema"),
    ({**TALK, "llm": "none", "records_per_label": 1}, "language model"),
]


@pytest.mark.parametrize(("changes", "said"), BAD)
def test_bad_settings_are_told_before_anything_is_charged(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, CorpusError)) as caught:
        running.run(run_config(values(tmp_path, **{"llm": "builtin", **changes})))
    assert said in str(caught.value)
    assert not runs_charged(tmp_path / "ledger.sqlite")


# -- what is told from a dialogue -------------------------------------------------------------------------------------

TOLD = {**TALK, "columns": "turns=1..6; begins=customer|agent"}


@pytest.fixture
def quick_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabling, "fit", simple_fit)


@pytest.mark.usefixtures("quick_fit")
def test_turns_and_who_begins_are_columns_told_from_the_dialogue(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]
) -> None:
    chat = use_chat(says(SPOKEN))
    running.run(run_config(values(tmp_path, llm="fake", **TOLD, records_per_label=30, epsilon="8")))
    table = pq.read_table(tmp_path / "out" / "release" / "synthetic.parquet")
    assert str(table.schema.field("turns").type) == "int64"
    assert table["turns"].to_pylist() == [len(each) for each in table["messages"].to_pylist()]
    assert set(table["begins"].to_pylist()) == {"customer"}
    assert {2, 3} <= set(table["turns"].to_pylist()) <= {1, 2, 3}  # what is longer than asked for is cut
    assert all(request.messages[-1].content.startswith("Details: turns: ") for request in chat.asked)


@pytest.mark.usefixtures("quick_fit")
def test_what_a_dialogue_tells_meets_the_condition_or_it_is_left_out(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]
) -> None:
    use_chat(says(SPOKEN))
    made = running.release(run_config(values(tmp_path, **TOLD, records_per_label=None))).release
    kept = us.generate(made, llm="fake", records_per_label=5, where="turns=3")
    assert [record.columns for record in kept.records] == [(3, "customer")] * 10
    with pytest.raises(NoText, match="condition"):
        us.generate(made, llm="fake", records_per_label=5, where="turns=4..6")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("turns=few|many", "no whole number"),
        ("calls.search=0..2", "--tools does not declare 'search'"),
        ("turns.ask=0..2", "--acts does not declare 'ask'"),
        ("turns=0.5..9.5", "no whole number"),
        ("begins=customer|bot", "not the roles"),
        ("begins", "not the roles"),
        ("transcript=1..6", "transcript"),
        ("messages=1..6", "messages"),
    ],
)
def test_columns_that_cannot_be_told_are_refused(tmp_path: Path, columns: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        running.release(run_config(values(tmp_path, **{**TALK, "columns": columns, "records_per_label": None})))
    with pytest.raises((ConfigError, CorpusError), match=said):
        us.read_corpus([{"messages": []}], text="messages", roles=ROLES, columns=f"{columns}; x")


def test_a_last_act_needs_declared_acts(tmp_path: Path) -> None:
    talks = tmp_path / "talks.jsonl"
    talks.write_text(json.dumps({"messages": [{"role": "customer", "content": "Hello?"}], "product": "router"}) + "\n")
    with pytest.raises(CorpusError, match="No row has the column 'ends'") as caught:
        running.release(run_config(values(tmp_path, data=talks, **TALK, columns="ends=ask|offer")))
    assert "--acts" in caught.value.cure


def test_what_is_told_is_no_part_of_the_label(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="part of the label"):
        running.release(run_config(values(tmp_path, **{**TOLD, "label": "begins", "labels": None})))


@pytest.mark.usefixtures("quick_fit")
def test_a_dialogue_that_was_written_for_no_row_gets_one_that_goes_with_it(tmp_path: Path) -> None:
    columns = "turns=1..6; begins=customer|agent; answered=long|short"
    made = [
        {"product": "phone", "messages": dialogue(2 * (number % 2), "phone"), "answered": ("short", "long")[number % 2]}
        for number in range(200)
    ]
    pq.write_table(pa.Table.from_pylist(made), tmp_path / "talks.parquet")
    settings = values(tmp_path, data=tmp_path / "talks.parquet", **{**TALK, "columns": columns}, records_per_label=None)
    released = running.release(run_config({**settings, "epsilon": "8", "column_pairs": "turns*answered"})).release
    rows = tabling.TableRows.of(released, seed=0)
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
def test_acts_and_calls_are_asked_for_written_and_read_again(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat], output_format: str
) -> None:
    chat = use_chat(FakeChat(replies))
    settings = bookings(tmp_path, columns=SHAPE, epsilon="8", records_per_label=4)
    result = running.run(run_config(settings))
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
    columns = result.columns
    told = [result.release.schema.form.tell(text) for text in texts]
    assert len(told) == 8
    for name in ("turns", "ends", "turns.offer", "calls.search", "calls.book"):
        assert columns[name] == [each[name] for each in told]
    longest = max(columns["messages"], key=len)  # type: ignore[type-var, arg-type]
    assert longest[1]["content"] is None  # type: ignore[index]
    assert [call["id"] for call in longest[1]["tool_calls"]] == ["call_1", "call_2"]  # type: ignore[index]
    assert not {"search", "book", "assistant", "user"} & set(result.release.terms)
    assert {"router", "screen", "signal"} <= set(result.release.terms), "what calls and answers say is counted"


@pytest.mark.usefixtures("quick_fit")
def test_a_table_with_calls_is_evaluated_reported_and_exported(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat]
) -> None:
    use_chat(FakeChat(replies))
    running.run(run_config(bookings(tmp_path, columns=SHAPE, epsilon="8")))
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
    ({"acts": ()}, "--acts"),
    ({"tools": ()}, "--tools"),
    ({"tools": "book"}, "calls a tool that is not declared"),
    ({"roles": "user,assistant,tool"}, "Leave tool out"),
    ({"roles": (), "text": "product"}, "no roles"),
    ({"acts": "ask,Ask"}, "same name"),
    ({"acts": ["ask", ""]}, "no name"),
    ({"acts": "ask (x)"}, "cannot stand"),
    ({"acts": ["ask", 1]}, "string"),
    ({"tools": "search for"}, "no function"),
    ({"tools": "search,search"}, "same name"),
    ({"columns": "ends=ask|offer"}, "not the acts"),
    ({"columns": "turns.offer"}, "no whole number"),
    ({"columns": "calls.search=yes|no"}, "no whole number"),
    ({"columns": "turns.shout=0..3"}, "turns.shout"),
    ({"columns": "calls.fly=0..3"}, "calls.fly"),
    ({"label": "ends", "labels": None, "columns": "ends=ask|offer|thank"}, "part of the label"),
]


@pytest.mark.parametrize(("changes", "said"), BAD_USES, ids=range(len(BAD_USES)))
def test_bad_acts_and_tools_are_told_before_anything_is_charged(
    tmp_path: Path, use_chat: Callable[[FakeChat], FakeChat], changes: dict[str, Any], said: str
) -> None:
    use_chat(FakeChat(replies))
    with pytest.raises((ConfigError, CorpusError)) as caught:
        running.run(run_config(bookings(tmp_path, **changes)))
    assert said in str(caught.value)
    assert not runs_charged(tmp_path / "ledger.sqlite")


def test_a_release_of_plain_dialogues_is_written_as_before(tmp_path: Path) -> None:
    made = running.release(run_config(values(tmp_path, records_per_label=None, **TALK))).release
    assert made.schema.to_json()["form"] == {"fields": [], "roles": list(ROLES)}
    assert not {"acts", "tools"} & set(run_config(values(tmp_path, **TALK)).lasting)
    used = running.release(run_config(bookings(tmp_path, output=str(tmp_path / "b"), records_per_label=None))).release
    again = us.load_release(tmp_path / "b" / "release" / "dp-kps.release")
    assert again.schema == used.schema
    assert again.schema.form.tools == ("search", "book")
    assert again.schema.texts == {
        **{"text": "messages", "roles": ["user", "assistant"]},
        **{"acts": ["ask", "offer", "thank"], "tools": ["search", "book"]},
    }
