"""Cells of texts that have parts: read the same from every format, and judged one row at a time."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_tables import everything_in, rows_of, texts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import read_corpus
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.secrets import SecretFinder, secrets_of_records
from understudy.corpus.verified import contents
from understudy.ledger.values import Sketch
from understudy.privacy.unit import Unit

ROLES = "customer,agent"
SECRET = "Zebra"
GOOD = [{"role": "customer", "content": "Hello?"}, {"role": "agent", "content": "Yes."}]


def turn(role: Any = "customer", content: Any = SECRET, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


NESTED: Any = SECRET
for _ in range(200):
    NESTED = [NESTED]

BAD_DIALOGUES: list[tuple[Any, str]] = [
    (None, "empty text"),
    ([], "empty text"),
    ("", "empty text"),
    (SECRET, "not a list of turns"),
    ("[", "not a list of turns"),
    (f'{{"role": "customer", "content": "{SECRET}"}}', "not a list of turns"),
    ('[{"role": "customer", "role": "agent", "content": "x"}]', "not a list of turns"),
    ('[{"role": "customer", "content": NaN}]', "not a list of turns"),
    ("[" * 1000 + "]" * 1000, "not a list of turns"),
    (7, "not a list of turns"),
    (b"x", "not a list of turns"),
    ({"role": "customer", "content": SECRET}, "not a list of turns"),
    ([SECRET], "not a list of turns"),
    ([{}], "not a list of turns"),
    ([{"role": "customer"}], "no content"),
    ([{"from": "customer", "value": SECRET}], "not a list of turns"),
    ([turn(role=None)], "not a list of turns"),
    ([turn(role=["customer"])], "not a list of turns"),
    ([turn(role=SECRET)], "not declared"),
    ([turn(role="Customer")], "not declared"),
    ([turn(content=None)], "no content"),
    ([turn(content=3)], "not a list of turns"),
    ([turn(content=[SECRET])], "not a list of turns"),
    ([turn(content=NESTED)], "not a list of turns"),
    ([turn(name=SECRET)], "not a list of turns"),
    ([turn(act=SECRET)], "not a list of turns"),
    ([turn("tool")], "not declared"),
    ([*GOOD, turn(content="")], "no content"),
    ([turn(content="\ud800")], "encoding"),
    ([turn(content="x" * 2_000_000)], "longer than the limit"),
    ([turn() for _ in range(100_000)], "longer than the limit"),
]
BAD_FIELDS: list[tuple[Any, str]] = [
    ({"subject": 3, "message": "x"}, "not a string"),
    ({"subject": [SECRET], "message": "x"}, "not a string"),
    ({"subject": "", "message": ""}, "empty text"),
    ({}, "empty text"),
    ({"subject": "x", "message": "\udcff"}, "encoding"),
    ({"subject": "x" * 600_000, "message": "x" * 600_000}, "longer than the limit"),
]


@pytest.mark.parametrize(("cell", "said"), BAD_DIALOGUES, ids=range(len(BAD_DIALOGUES)))
def test_a_dialogue_that_is_none_is_a_bad_row_whose_reason_quotes_nothing(cell: Any, said: str) -> None:
    rows = [{"messages": GOOD}, {"messages": cell}]
    with pytest.raises(CorpusError, match=said) as caught:
        texts_of(read_corpus(rows, text="messages", roles=ROLES))
    assert SECRET not in everything_in(caught.value)
    left = read_corpus(rows, text="messages", roles=ROLES, on_bad_row="skip")
    assert texts_of(left) == ["customer: Hello?\nagent: Yes."]


@pytest.mark.parametrize(("row", "said"), BAD_FIELDS, ids=range(len(BAD_FIELDS)))
def test_fields_that_are_no_texts_are_a_bad_row(row: dict[str, Any], said: str) -> None:
    rows = [{"subject": "A", "message": "B"}, row]
    with pytest.raises(CorpusError, match=said) as caught:
        texts_of(read_corpus(rows, text=["subject", "message"]))
    assert SECRET not in everything_in(caught.value)
    assert texts_of(read_corpus(rows, text="subject,message", on_bad_row="skip")) == ["subject: A\nmessage: B"]


def test_other_keys_without_a_value_are_let_be() -> None:
    rows = [{"messages": [turn(content="yes", name=None)]}]
    assert texts_of(read_corpus(rows, text="messages", roles=ROLES)) == ["customer: yes"]


def test_every_format_gives_the_same_texts_and_fingerprint(tmp_path: Path) -> None:
    said = [GOOD, [turn(content="One\nagent: two\r\n\\agent: three")], [turn("agent", '=1+1; "quoted", \u2028')]]
    rows = [{"messages": each, "id": number} for number, each in enumerate(said)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    as_json = [{**row, "messages": json.dumps(row["messages"])} for row in rows]
    pq.write_table(pa.Table.from_pylist(as_json), tmp_path / "b.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in as_json))
    with (tmp_path / "a.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["messages", "id"])
        writer.writeheader()
        writer.writerows(as_json)
    corpora = [read_corpus(path, text="messages", roles=ROLES) for path in sorted(tmp_path.iterdir())]
    assert len({tuple(texts_of(corpus)) for corpus in corpora}) == 1
    assert len({corpus.fingerprint(b"key") for corpus in corpora}) == 1
    form = corpora[0].schema.form
    assert [form.cells("messages", text)["messages"] for text in texts_of(corpora[0])] == said


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(),
        pa.list_(pa.string()),
        pa.list_(pa.struct([("role", pa.string())])),
        pa.list_(pa.struct([("role", pa.int64()), ("content", pa.string())])),
        pa.struct([("role", pa.string()), ("content", pa.string())]),
        pa.map_(pa.string(), pa.string()),
    ],
    ids=str,
)
def test_a_column_of_another_type_is_told_by_its_type_alone(kind: pa.DataType) -> None:
    table = pa.table({"messages": pa.array([None], kind)})
    with pytest.raises(CorpusError, match="does not contain dialogues"):
        read_corpus(table, text="messages", roles=ROLES)


def test_a_dialogue_read_as_a_text_says_what_to_declare() -> None:
    table = pa.table({"messages": [GOOD]})
    with pytest.raises(CorpusError, match="roles"):
        read_corpus(table, text="messages")


def test_owners_of_dialogues_are_bounded_as_others_are() -> None:
    rows = [{"messages": [turn(content=str(number))], "who": f"p{number % 3}"} for number in range(9)]
    found = rows_of(read_corpus(rows, text="messages", roles=ROLES, owner="who"))
    assert [row[-1] for row in found] == ["p0", "p1", "p2"] * 3


def test_turns_and_beginnings_are_cells_of_typed_columns() -> None:
    columns = "turns=1..4; begins=customer|agent; stars=1..5"
    corpus = read_corpus(
        [{"messages": GOOD, "stars": 5, "turns": "of another kind"}, {"messages": [turn("agent")] * 9, "stars": 1}],
        text="messages",
        roles=ROLES,
        columns=columns,
    )
    (batch,) = corpus.batches()
    assert batch.cells is not None
    assert batch.cells.tolist() == [[1, 0, 4], [3, 1, 0]]  # beyond the range counts as its end
    assert corpus.schema.columns == ("messages", "stars")


def test_roles_without_a_column_are_refused() -> None:
    with pytest.raises(ConfigError, match="Roles"):
        read_corpus([{"a": "x", "b": "y"}], record_columns=["a", "b"], roles=ROLES)


# -- acts, and calls of tools -----------------------------------------------------------------------------------------

BOOKING: dict[str, Any] = {"text": "messages", "roles": ("user", "assistant"), "tools": ("search", "book")}
ACTS: dict[str, Any] = {"text": "messages", "roles": ROLES, "acts": ("ask", "answer")}
ASKED = {"role": "user", "content": "A table?"}


def call(name: Any = "search", arguments: Any = '{"city": "Oakland"}', own: Any = "c1", **more: Any) -> dict[str, Any]:
    return {"id": own, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def calling(*calls: Any, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **more}


def answer(content: Any = "Alma", own: Any = "c1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": own, **more}


CALLED = [ASKED, calling(call(), call("book", {"seats": 2, "at": None}, "c2")), answer("ok", "c2"), answer()]
WRITTEN = (
    'user: A table?\nassistant calls search: {"city": "Oakland"}\nassistant calls book: {"seats": 2}\n'
    "search returns: Alma\nbook returns: ok"
)


def test_calls_are_read_as_chat_formats_have_them_and_answers_stand_in_their_order() -> None:
    plain = [ASKED, calling({"function": {"name": "search", "arguments": {}}}), {"role": "tool", "content": None}]
    said = [ASKED, calling(call("search", "", None), content="Wait."), answer("x", None, name="search")]
    rows = [{"messages": each} for each in (CALLED, plain, said, [ASKED, calling(call())], [calling(content="Hello.")])]
    assert texts_of(read_corpus(rows, **BOOKING)) == [
        WRITTEN,
        "user: A table?\nassistant calls search: {}\nsearch returns:",
        "user: A table?\nassistant: Wait.\nassistant calls search: {}\nsearch returns: x",
        'user: A table?\nassistant calls search: {"city": "Oakland"}',
        "assistant: Hello.",
    ]


def test_every_format_gives_the_same_calls_and_acts(tmp_path: Path) -> None:
    said = [
        [{**ASKED, "act": "ask"}, calling(call(), call("book", '{"seats": 2}', "c2")), answer(), answer("", "c2")],
        [ASKED, calling(call("book", '{"city":\n "A \\"B\\"", "n": 1.50}', "7"), content="Wait.", act="wait")],
    ]
    rows = [{"messages": each} for each in said]
    as_objects = json.loads(json.dumps(rows))
    for row in as_objects:
        for turn in row["messages"]:
            for made in turn.get("tool_calls", ()):
                made["function"]["arguments"] = json.loads(made["function"]["arguments"])
    as_json = [{"messages": json.dumps(each)} for each in said]
    for name, table in [("a", rows), ("b", as_objects), ("c", as_json)]:
        pq.write_table(pa.Table.from_pylist(table), tmp_path / f"{name}.parquet")
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    with (tmp_path / "c.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["messages"], *([row["messages"]] for row in as_json)])
    corpora = [read_corpus(path, **BOOKING, acts=("ask", "wait")) for path in sorted(tmp_path.iterdir())]
    assert len(corpora) == 7
    assert len({tuple(texts_of(corpus)) for corpus in corpora}) == 1
    found = [corpora[0].schema.form.messages(text) for text in texts_of(corpora[0])]
    assert [turn.get("act") for turn in found[0] + found[1]] == ["ask", None, None, None, None, "wait"]
    assert found[1][1]["tool_calls"] == [call("book", '{"city": "A \\"B\\"", "n": 1.5}', "call_1")]
    again = read_corpus([{"messages": each} for each in found], **BOOKING, acts=("ask", "wait"))
    assert texts_of(again) == texts_of(corpora[0])


BAD_CALLS: list[tuple[Any, str]] = [
    ([ASKED, calling(call("fly"))], "calls a tool that is not declared"),
    ([ASKED, calling(call(arguments=[SECRET]))], "invalid tool call"),
    ([ASKED, calling(call(arguments=f'["{SECRET}"]'))], "invalid tool call"),
    ([ASKED, calling(call(type="retrieval"))], "invalid tool call"),
    ([ASKED, {**ASKED, "tool_calls": SECRET}], "invalid tool call"),
    ([ASKED, calling(call()), answer(name="book")], "do not match"),
    ([ASKED, calling(call()), answer(score=1)], "not a list of turns"),
    ([ASKED, calling(call(None))], "invalid tool call"),
    ([ASKED, calling(call(arguments=f"city={SECRET}"))], "invalid tool call"),
    ([ASKED, calling(call(arguments='{"a": NaN}'))], "invalid tool call"),
    ([ASKED, calling(call(arguments={"a": NESTED}))], "invalid tool call"),
    ([ASKED, calling(call(arguments='{"a": "\\ud800"}'))], "invalid tool call"),
    ([ASKED, calling(call(own=3))], "invalid tool call"),
    ([ASKED, calling(call(index=0))], "invalid tool call"),
    ([ASKED, calling({"name": "search", "arguments": "{}"})], "invalid tool call"),
    ([ASKED, calling(SECRET)], "invalid tool call"),
    ([ASKED, calling(call()), ASKED], "do not match"),
    ([ASKED, calling(call()), answer(own="c9")], "do not match"),
    ([ASKED, calling(call()), answer(), answer()], "do not match"),
    ([ASKED, calling(call(), call("book", "{}", "c2")), answer()], "do not match"),
    ([answer()], "do not match"),
    ([ASKED, calling(call()), answer([SECRET])], "not a list of turns"),
    ([ASKED, calling(function_call={"name": "search"})], "not a list of turns"),
    ([ASKED, calling()], "no content"),
    ([{**ASKED, "act": "ask"}], "not a list of turns"),
]


@pytest.mark.parametrize(("cell", "said"), BAD_CALLS, ids=range(len(BAD_CALLS)))
def test_calls_and_answers_that_are_none_are_a_bad_row_whose_reason_quotes_nothing(cell: Any, said: str) -> None:
    rows = [{"messages": CALLED}, {"messages": cell}]
    with pytest.raises(CorpusError, match=said) as caught:
        texts_of(read_corpus(rows, **BOOKING))
    assert SECRET not in everything_in(caught.value)
    assert texts_of(read_corpus(rows, **BOOKING, on_bad_row="skip")) == [WRITTEN]


@pytest.mark.parametrize(
    ("act", "said"), [(SECRET, "an act that is not declared"), ("Ask", "an act that is not"), (3, "not a list")]
)
def test_an_act_that_is_none_is_a_bad_row(act: Any, said: str) -> None:
    rows = [{"messages": [turn(content="Well?", act="ask"), turn(content="...", act=None)]}]
    assert texts_of(read_corpus(rows, **ACTS)) == ["customer (ask): Well?\ncustomer: ..."]
    with pytest.raises(CorpusError, match=said) as caught:
        texts_of(read_corpus([{"messages": [turn(act=act)]}], **ACTS))
    assert SECRET not in everything_in(caught.value)


def test_an_act_of_a_turn_that_only_calls_is_a_bad_row() -> None:
    with pytest.raises(CorpusError, match="no content"):
        texts_of(read_corpus([{"messages": [calling(call(), act="wait")]}], **BOOKING, acts=("wait",)))


def test_acts_and_calls_are_cells_of_typed_columns() -> None:
    columns = "turns=1..9; ends=ask|wait; turns.ask=0..1; calls.search=0..3; calls.book=0..3"
    corpus = read_corpus(
        [{"messages": CALLED}, {"messages": [{**ASKED, "act": "ask"}] * 5}],
        **BOOKING,
        acts=("ask", "wait"),
        columns=columns,
    )
    (batch,) = corpus.batches()
    assert batch.cells is not None
    assert batch.cells.tolist() == [[3, 2, 0, 1, 1], [4, 0, 1, 0, 0]]  # no act at the end is missing
    assert corpus.schema.columns == ("messages",)


def test_what_a_call_says_is_searched_for_secrets_in_keys_and_values() -> None:
    rows = [
        {"messages": [calling(call(arguments={"who": {'Jane "Doe"': ["O'Neil\n5551234"]}}))]},
        {"messages": [calling(call())]},
    ]
    corpus = read_corpus(rows, **BOOKING)
    finder = SecretFinder(['Jane "Doe"', "5551234", "search", "assistant"], listed=(), detectors=())
    found = list(secrets_of_records(corpus, finder))
    assert [len(each) for each in found] == [2, 0]


@pytest.mark.parametrize(
    "said",
    [
        '{"note": "Seen:\\nJane Doe"}',
        '{"note": "\\u004aane Doe"}',
        '[{"Jane Doe": null}]',
        '{"body": "{\\"note\\": \\"\\\\tJane Doe\\"}"}',
        '{"note": "Jane Doe", "note": NaN}',
        "[" * 5000 + " Jane Doe",
        "Jane Doe",
    ],
)
def test_secrets_are_found_in_what_the_answer_of_a_tool_says(said: str) -> None:
    corpus = read_corpus([{"messages": [calling(call()), answer(said)]}, {"messages": [calling(call())]}], **BOOKING)
    finder = SecretFinder(["Jane Doe"], listed=(), detectors=())
    assert [len(each) for each in secrets_of_records(corpus, finder)] == [1, 0]


def test_words_of_a_tools_answer_are_counted_without_the_escapes_of_json() -> None:
    text = '{"note": "Seen:\\nJane", "ok": true, "at": [5]}'
    corpus = read_corpus([{"messages": [calling(call(arguments="{}")), answer(text)]}], **BOOKING)
    (batch,) = BoundedCorpus(corpus, Unit(), b"key", form=corpus.schema.form).batches()
    assert list(batch.said) == ["Seen:\nJane\n5"]


def test_dialogues_with_calls_are_known_again_from_a_csv_file_of_plain_texts(tmp_path: Path) -> None:
    made = [
        {"talk": [{**ASKED, "act": "ask"}, calling(call(arguments=f'{{"at": "{number}"}}')), answer(f"{number} times")]}
        for number in range(60)
    ]
    with (tmp_path / "talks.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["talk"], *([json.dumps(row["talk"])] for row in made)])
    (tmp_path / "talks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    plain = contents(read_corpus(tmp_path / "talks.csv", text="talk"), b"key")
    read = {**BOOKING, "text": "talk", "acts": ("ask",)}
    dialogues = contents(read_corpus(tmp_path / "talks.jsonl", **read), b"key")
    assert Sketch(plain.cells).is_near(Sketch(dialogues.cells))


VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from(['[{"role": "user", "content": "x"}]', 'say ""x""\n', "a\\nb", "{", "null"]),
)
FIELDS = ("city", "Seats", "b", "a")


def spelled(value: Any, draw: Callable[[Any], Any]) -> Any:
    """The same JSON, otherwise: keys in another order, some without a value, whole numbers as floats."""
    if isinstance(value, dict):
        pairs = [(key, each if key == "role" else spelled(each, draw)) for key, each in value.items()]
        return dict(draw(st.permutations([*pairs, *([("none", None)] if draw(st.booleans()) else [])])))
    if isinstance(value, list):
        return [spelled(each, draw) for each in value]
    return float(value) if type(value) is int and draw(st.booleans()) else value


def booked(number: int, arguments: Any, said: str, own: str = "c") -> dict[str, Any]:
    ids = f"{own}{number}"
    made = [ASKED, calling(call(arguments=arguments, own=ids)), answer(said, ids), turn("assistant", f"No. {number}")]
    return {"id": number, "messages": made}


def known_by(path: Path, table: list[dict[str, Any]]) -> tuple[str, tuple[int, ...]]:
    """The fingerprint and the sketch of a table in the format that the path ends with."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(table), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table))
    else:
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, ["id", "messages"])
            writer.writeheader()
            writer.writerows({**row, "messages": json.dumps(row["messages"])} for row in table)
    corpus = read_corpus(path, **BOOKING)
    return corpus.fingerprint(b"key"), contents(corpus, b"key").cells


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shelf")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, VALUES)), VALUES), min_size=1, max_size=5
    ),
    st.data(),
)
def test_a_table_with_calls_is_known_again_however_it_is_converted(
    shelf: Path, asked: list[tuple[dict[str, Any], Any]], data: st.DataObject
) -> None:
    objects = [
        booked(number, {**fields, "in": {"n": number}}, str(said)) for number, (fields, said) in enumerate(asked)
    ]
    strings = [
        booked(number, json.dumps(spelled({**fields, "in": {"n": number}}, data.draw)), str(said), "other")
        for number, (fields, said) in enumerate(asked)
    ]
    otherwise = [
        {"id": row["id"], "messages": [spelled(each, data.draw) for each in row["messages"]]} for row in objects
    ]
    found = {
        known_by(shelf / f"t{end}", table)
        for table in (objects, strings, otherwise)
        for end in (".jsonl", ".csv", ".parquet")
        if end != ".parquet" or table is strings or of_one_type(asked)
    }
    assert len(found) == 1
    ((texts, _cells),) = found
    changed = json.loads(json.dumps(objects))
    changed[0]["messages"][1]["tool_calls"][0]["function"]["arguments"]["in"]["n"] = 7
    assert known_by(shelf / "t.jsonl", changed)[0] != texts


def of_one_type(asked: list[tuple[dict[str, Any], Any]]) -> bool:
    """Whether Parquet can hold these arguments as they are: a column has one type."""
    types = {(name, type(value)) for fields, _ in asked for name, value in fields.items()}
    return len({name for name, _ in types}) == len(types)
