"""Cells of texts that have parts: read the same from every format, and judged one row at a time."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_tables import everything_in, rows_of, texts_of

from understudy.corpus import read_corpus
from understudy.errors import ConfigError, CorpusError
from understudy.ledger.values import Sketch

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
    ("  \n", "empty text"),
    (SECRET, "not a list of turns"),
    ("[", "not a list of turns"),
    (f'["{SECRET}"', "not a list of turns"),
    (f'{{"role": "customer", "content": "{SECRET}"}}', "not a list of turns"),
    ('[{"role": "customer", "role": "agent", "content": "x"}]', "not a list of turns"),
    ('[{"role": "customer", "content": NaN}]', "not a list of turns"),
    ("null", "not a list of turns"),
    ("3", "not a list of turns"),
    ('"text"', "not a list of turns"),
    ("[" * 1000 + "]" * 1000, "not a list of turns"),
    (7, "not a list of turns"),
    (1.5, "not a list of turns"),
    (True, "not a list of turns"),
    (b"x", "not a list of turns"),
    ({"role": "customer", "content": SECRET}, "not a list of turns"),
    ([SECRET], "not a list of turns"),
    ([None], "not a list of turns"),
    ([[]], "not a list of turns"),
    ([GOOD], "not a list of turns"),
    ([{}], "not a list of turns"),
    ([{"role": "customer"}], "no content"),
    ([{"content": SECRET}], "not a list of turns"),
    ([{"from": "customer", "value": SECRET}], "not a list of turns"),
    ([turn(role=None)], "not a list of turns"),
    ([turn(role=1)], "not a list of turns"),
    ([turn(role=True)], "not a list of turns"),
    ([turn(role=["customer"])], "not a list of turns"),
    ([turn(role=SECRET)], "not declared"),
    ([turn(role="Customer")], "not declared"),
    ([turn(role=" customer")], "not declared"),
    ([turn(role="")], "not declared"),
    ([turn(role="system")], "not declared"),
    ([turn(content=None)], "no content"),
    ([turn(content="")], "no content"),
    ([turn(content=" \n\t")], "no content"),
    ([turn(content=3)], "not a list of turns"),
    ([turn(content=[SECRET])], "not a list of turns"),
    ([turn(content=NESTED)], "not a list of turns"),
    ([turn(content={"text": SECRET})], "not a list of turns"),
    ([turn(name=SECRET)], "not a list of turns"),
    ([turn(tool_calls=[])], "not a list of turns"),
    ([*GOOD, turn(content="")], "no content"),
    ([turn(content="\ud800")], "encoding"),
    ([turn(content="x" * 2_000_000)], "longer than the limit"),
    ([turn() for _ in range(100_000)], "longer than the limit"),
]
BAD_FIELDS: list[tuple[Any, str]] = [
    ({"subject": 3, "message": "x"}, "not a string"),
    ({"subject": [SECRET], "message": "x"}, "not a string"),
    ({"subject": {"x": SECRET}, "message": "x"}, "not a string"),
    ({"subject": True, "message": "x"}, "not a string"),
    ({"subject": "", "message": ""}, "empty text"),
    ({"subject": None, "message": None}, "empty text"),
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


def test_ten_thousand_turns_are_one_record() -> None:
    rows = [{"messages": [turn(content="yes"), *[turn("agent", "no")] * 9_999]}]
    (text,) = texts_of(read_corpus(rows, text="messages", roles=ROLES))
    assert text.count("\n") == 9_999


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
    with pytest.raises(CorpusError, match="cannot hold dialogues"):
        read_corpus(table, text="messages", roles=ROLES)


def test_a_dialogue_read_as_a_text_says_what_to_declare() -> None:
    table = pa.table({"messages": [GOOD]})
    with pytest.raises(CorpusError, match="--roles"):
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


@pytest.mark.parametrize("name", ["talks.parquet", "talks.jsonl"])
def test_dialogues_are_known_again_as_those_of_a_csv_file_that_was_read_as_plain_texts(
    tmp_path: Path, name: str
) -> None:
    made = [
        {"id": number, "talk": [turn(content=f"Hello {number}.\nAre you there?"), turn("agent", f"{number} times.")]}
        for number in range(60)
    ]
    with (tmp_path / "talks.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["id", "talk"])
        writer.writeheader()
        writer.writerows({**row, "talk": json.dumps(row["talk"])} for row in made)
    pq.write_table(pa.Table.from_pylist(made), tmp_path / "talks.parquet")
    (tmp_path / "talks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    plain = read_corpus(tmp_path / "talks.csv", text="talk").identity(b"key", lines=Sketch.SIZE)
    dialogues = read_corpus(tmp_path / name, text="talk", roles=ROLES).identity(b"key", lines=Sketch.SIZE)
    assert Sketch(plain.lines).is_near(Sketch(dialogues.lines))
