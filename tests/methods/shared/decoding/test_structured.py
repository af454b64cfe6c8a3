"""Texts of a model read as records: columns, schema, what is kept, what is counted."""

from __future__ import annotations

import builtins
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from understudy.base.errors import ConfigError
from understudy.corpus.corpus import RowCheck
from understudy.corpus.schema import Schema
from understudy.methods.shared.decoding.structured import Fault, JSONSchema, RecordCheck

COLUMNS = ("title", "year")
CHECK = RecordCheck(COLUMNS)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1},
        "year": {"$ref": "#/$defs/year"},
        "genres": {"type": ["array", "null"], "items": {"type": "string"}},
    },
    "$defs": {"year": {"type": "integer", "minimum": 1900}},
}


def schema(folder: Path, content: object) -> JSONSchema:
    path = folder / "record.schema.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return JSONSchema(path)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (' {"year": 1954, "title": "Rain é"}\n', '{"title": "Rain é", "year": 1954}'),
        ('{"title": null, "year": 3.0}', '{"title": null, "year": 3}'),
        (
            '{"title": "\\u00e9\\ud83d\\ude00", "year": [1.5, {"a": true}]}',
            '{"title": "é😀", "year": [1.5, {"a": true}]}',
        ),
    ],
)
def test_a_record_is_kept_as_the_corpus_writes_it(text: str, kept: str) -> None:
    assert CHECK(text) == kept
    cells = [json.loads(kept)[name] for name in COLUMNS]
    row = RowCheck(Schema(text=None, record_columns=COLUMNS), max_cell_bytes=1000, known=None)(cells)
    assert isinstance(row, tuple)
    assert row[0] == kept


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", Fault.NOT_JSON),
        ('{"title": "Rain", "year": 1954', Fault.NOT_JSON),
        ('{"title": "Rain", "year": NaN}', Fault.NOT_JSON),
        ('{"title": "Rain", "year": 1e999}', Fault.NOT_JSON),
        ('{"title": "Rain", "year": %s}' % ("9" * 5000), Fault.NOT_JSON),
        ('{"title": "\\ud83d", "year": 1}', Fault.NOT_JSON),
        ('{"\\ud83d": "", "year": 1}', Fault.NOT_JSON),
        ('{"title": "", "year": ' + "[" * 70 + "]" * 70 + "}", Fault.NOT_JSON),
        ('{"title": ' + "[" * 100_000, Fault.NOT_JSON),
        ('{"title": "", "year": ' + '{"a":' * 900 + "1" + "}" * 900 + "}", Fault.NOT_JSON),
        ("[1]", Fault.NOT_AN_OBJECT),
        ('{"title": "Rain"}', Fault.COLUMNS),
        ('{"title": "Rain", "year": 1, "more": 2}', Fault.COLUMNS),
        ('{"title": "Rain", "year": 1, "year": 2}', Fault.COLUMNS),
        ('{"title": {"a": 1, "a": 2}, "year": 1}', Fault.COLUMNS),
    ],
)
def test_what_is_no_record_says_why(text: str, fault: Fault) -> None:
    assert CHECK(text) is fault


def test_the_schema_decides_where_the_columns_are_right(tmp_path: Path) -> None:
    check = RecordCheck(COLUMNS, schema(tmp_path, SCHEMA))
    assert check('{"title": "Rain", "year": 1954.0}') == '{"title": "Rain", "year": 1954}'
    assert check('{"title": "", "year": 1954}') is Fault.SCHEMA
    assert check('{"title": "Rain", "year": "1954"}') is Fault.SCHEMA
    assert check('{"title": "Rain", "year": 1854}') is Fault.SCHEMA
    assert check('{"title": 3}') is Fault.COLUMNS


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[1]",
        '{"$schema": {}}',
        '{"properties": 3}',
        '{"$ref": "#"}',
        '{"properties": {"title": {"$ref": "#/$defs/none"}}}',
        '{"properties": {"title": {"$ref": "http://127.0.0.1:9/other.json"}}}',
        '{"$dynamicRef": "file:///etc/passwd"}',
        "[" * 100_000,
    ],
)
def test_a_schema_that_cannot_be_used_is_one_error(tmp_path: Path, content: str) -> None:
    with pytest.raises(ConfigError, match=r"record\.schema\.json"):
        schema(tmp_path, content)


def test_nothing_is_fetched_for_a_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    other = "http://schemas.example/other.json"
    hidden = {
        "$schema": other,
        "$id": other,
        "properties": {"year": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"$id": "b"}},
    }
    assert RecordCheck(COLUMNS, schema(tmp_path, hidden))('{"title": "", "year": 1}') == '{"title": "", "year": 1}'
    for reference in (other, "//schemas.example/a", "b"):
        with pytest.raises(ConfigError, match="refers to another one"):
            schema(tmp_path, {"properties": {"year": {"$ref": reference}}})


def test_a_record_on_which_the_schema_cannot_be_decided_does_not_fit(tmp_path: Path) -> None:
    loops = {"properties": {"title": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}}}
    loops["$defs"]["b"] = {"properties": {"x": {"$ref": "#/$defs/c"}}}
    loops["$defs"]["c"] = {"$dynamicAnchor": "c", "allOf": [{"pattern": "^a$"}]}
    check = RecordCheck(COLUMNS, schema(tmp_path, loops))
    assert check('{"title": [{"x": "b"}], "year": 1}') is Fault.SCHEMA
    deep = '{"title": ' + "[" * 60 + "]" * 60 + ', "year": 1}'
    assert check(deep) == deep


def _doubling(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)}
    return {**made, f"d{depth}": {}}


@pytest.mark.parametrize(
    "draft", [{}, {"$schema": "http://json-schema.org/draft-07/schema#"}], ids=["no draft", "draft 7"]
)
def test_references_without_end_are_refused_and_their_records_do_not_fit(tmp_path: Path, draft: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        schema(tmp_path, {**draft, "$defs": _doubling(40), "$ref": "#/$defs/d0"})
    tree = {"properties": {"in": {"allOf": [{"$ref": "#/$defs/tree"}] * 2}}}
    found = schema(tmp_path, {**draft, "$defs": {"tree": tree}, "allOf": [{"$ref": "#/$defs/tree"}]})
    record: dict[str, Any] = {}
    assert found.fits({"in": {"in": record}})
    for _ in range(40):
        record = {"in": record}
    assert not found.fits(record)
    assert found.fits({"in": {}}), "each record is judged by itself"


def test_a_schema_within_a_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="contains another one"):
        schema(tmp_path, {"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}})


def test_a_schema_that_is_none_is_told_where_and_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\(\$\.properties\.year\.type: 'thing' is not valid .*\)"):
        schema(tmp_path, {"properties": {"year": {"type": "thing"}}})
    with pytest.raises(ConfigError) as caught:
        schema(tmp_path, {"properties": {"year": {"type": "thing" * 1000}}})
    assert len(str(caught.value)) < 300


def test_without_the_extra_the_cure_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] in ("jsonschema", "referencing"):
            raise ImportError(name)
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert CHECK('{"title": "", "year": 1}') == '{"title": "", "year": 1}'
    with pytest.raises(ConfigError, match=r"understudy\[local\]"):
        schema(tmp_path, SCHEMA)
