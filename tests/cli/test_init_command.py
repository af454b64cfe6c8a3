"""``understudy init``: a configuration from names alone."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from understudy.base.errors import UnderstudyError
from understudy.cli import cli
from understudy.corpus.read import read_header
from understudy.run.settings import run_config

PRIVATE = "zanzibar"


def init(*words: str) -> str:
    done = CliRunner().invoke(cli, ["init", *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def uncommented(text: str) -> str:
    """As somebody fills it in: the columns without their comment signs."""
    head, _, rest = text.partition("# columns:\n")
    columns, _, tail = rest.partition("\n\n")
    return head + "columns:\n" + "\n".join(line.removeprefix("#") for line in columns.splitlines()) + "\n\n" + tail


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", f"id,message,priority,yes,weird: name\n1,{PRIVATE},{PRIVATE},2,3\n"),
        ("t.tsv", f"id\tmessage\tpriority\n1\t{PRIVATE}\t{PRIVATE}\n"),
        ("t.jsonl", f'{{"id": 1, "message": "{PRIVATE}", "priority": ["{PRIVATE}"]}}\n{PRIVATE}\n'),
    ],
)
def test_the_draft_is_yaml_without_a_value_and_can_be_filled_in(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    text = init(str(tmp_path / name))
    assert PRIVATE not in text
    assert yaml.safe_load(text)["text"] == "message"
    filled = run_config(yaml.safe_load(uncommented(text)))
    proposed = {column.name for column in filled.all_columns}
    assert proposed >= {"priority"}
    assert "id" not in proposed
    assert '# Not proposed, because their names suggest that they identify rows: "id"\n' in text


@pytest.mark.parametrize(
    ("name", "proposed"),
    [
        *(("ticket_id", False), ("ticketId", False), ("Row", False), ("Nr.", False), ("Unnamed: 0", False)),
        *(("paid", True), ("side", True), ("number of seats", True), ("monkey", True), ("notes", True)),
    ],
)
def test_a_column_that_numbers_rows_is_not_proposed(tmp_path: Path, name: str, proposed: bool) -> None:
    (tmp_path / "t.csv").write_text(f"message,{name}\n1,2\n")
    text = init(str(tmp_path / "t.csv"))
    assert ("#   " + name in text or f'#   "{name}"' in text) is proposed
    assert ("Not proposed" in text) is not proposed


def test_a_parquet_file_declares_kinds(tmp_path: Path) -> None:
    columns = {
        "body": pa.array([PRIVATE]),
        "age": pa.array([1]),
        "paid": pa.array([1.5]),
        "urgent": pa.array([True]),
        "day": pa.array([1], pa.date32()),
        "at": pa.array([1], pa.timestamp("ms")),
        "tags": pa.array([[PRIVATE]]),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert dict(read_header(str(tmp_path / "t.parquet"))) == {
        **{"body": "text", "age": "integer", "paid": "number", "urgent": "boolean"},
        **{"day": "date", "at": "datetime", "tags": None},
    }
    filled = run_config(yaml.safe_load(uncommented(init(str(tmp_path / "t.parquet")))))
    kinds = {column.name: column.kind for column in filled.typed_columns}
    assert kinds == {
        **{"age": "integer", "paid": "number", "urgent": "boolean"},
        **{"day": "date", "at": "datetime", "tags": "category"},
    }


@pytest.mark.parametrize(("header", "owner"), [("id,patient_no,text", "patient_no"), ("product,text", "COLUMN")])
def test_an_owner_is_proposed_only_where_a_name_looks_like_one(tmp_path: Path, header: str, owner: str) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\n")
    assert f"\n# owner: {owner}\n" in init(str(tmp_path / "t.csv"))


FIRST_RECORDS = {
    "a number": "101,anna,fever",
    "a day": "02.02.2024,anna,fever",
    "a time": "2024-02-02T10:00Z,anna,fever",
    "an e-mail address": "anna@example.org,fever",
    "an address of a page": "www.example.org/anna,fever",
    "a long text": f"anna,{'fever and ' * 7}",
    "nothing": "anna,,fever",
    "a name twice": "anna,fever,fever",
}


@pytest.mark.parametrize("first", FIRST_RECORDS.values(), ids=FIRST_RECORDS)
def test_a_first_record_is_not_taken_for_names(tmp_path: Path, first: str) -> None:
    (tmp_path / "t.csv").write_text(f"{first}\n{first}\n")
    words = [str(tmp_path / "t.csv"), "--output", str(tmp_path / "run.yaml")]
    with pytest.raises(UnderstudyError, match=r"look like values.*names_are_public") as caught:
        init(*words)
    assert "anna" not in str(caught.value)
    assert "fever" not in str(caught.value)
    assert not (tmp_path / "run.yaml").exists()
    init(*words, "--names-are-public")


def test_names_are_taken_with_digits_blanks_and_of_any_script(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("Q1 2024,icd10,2nd visit,e-mail,Größe (cm),診断,a.b/c,text\n", "utf-8")
    assert '"2nd visit"' in init(str(tmp_path / "t.csv"))


def test_a_file_is_written_once(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text\n")
    file = tmp_path / "run.yaml"
    assert init(str(tmp_path / "t.csv"), "--output", str(file)).strip() == str(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(file.read_text())["text"] == "text"
    with pytest.raises(UnderstudyError, match="already"):
        init(str(tmp_path / "t.csv"), "--output", str(file))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", b""),
        ("t.csv", b"\xff\xfe\x00"),
        ("t.jsonl", b"[1]\n"),
        ("t.jsonl", b"{" * 500),
        ("t.parquet", b"PAR1"),
        ("t.csv", b"id;message;paid\n1;a;2\n"),
    ],
)
def test_what_has_no_header_is_one_error(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnderstudyError) as caught:
        init(str(tmp_path / name))
    assert caught.value.cure


def test_a_column_of_dialogues_is_proposed_with_its_roles_to_be_named(tmp_path: Path) -> None:
    turns = [{"role": PRIVATE, "content": PRIVATE}]
    pq.write_table(pa.table({"note": ["x"], "chat": [turns], "stars": [1]}), tmp_path / "t.parquet")
    text = init(str(tmp_path / "t.parquet"))
    assert PRIVATE not in text
    filled = run_config(yaml.safe_load(uncommented(text)))
    assert (filled.text, filled.form.roles) == ("chat", ("A", "B"))
    assert {column.name for column in filled.typed_columns} >= {"stars", "turns", "begins"}


def test_what_was_told_of_the_file_stands_in_the_draft(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("Nr;Größe;Beschreibung\n".encode("cp1252"))
    text = init(str(tmp_path / "t.csv"), "--delimiter", ";", "--encoding", "cp1252", "--format", "csv")
    drafted = yaml.safe_load(text)
    assert {name: drafted.get(name) for name in ("delimiter", "encoding", "format")} == {
        **{"delimiter": ";", "encoding": "cp1252", "format": "csv"}
    }
    assert run_config(drafted).text == "Beschreibung"
    assert "formats: de" in text
    assert run_config(yaml.safe_load(text.replace("# discover_terms", "discover_terms"))).method == "dp-kps"


def test_nothing_is_proposed_by_its_place_and_what_is_has_its_reason(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n")
    text = init(str(tmp_path / "t.csv"))
    assert "\ntext: COLUMN  #" in text
    assert "\n# label: COLUMN\n" in text
    assert "(proposed" not in text
    (tmp_path / "u.csv").write_text("customer,topic,note,created_at,amount\n")
    text = init(str(tmp_path / "u.csv"))
    for name, reason in {"customer": "customer", "topic": "topic"}.items():
        before = text.partition(f": {name}\n")[0].rpartition("(proposed because")[2]
        assert f"its name contains '{reason}'" in before
    assert "#   created_at: {kind: date," in text
    assert "#   amount: {kind: number," in text


PEOPLE = """
    Pat_ID patid PATIENT_ID PatientNr PatientenID customerNo CustomerID cust_no KundenNr Kundennummer Kunden-Nr. Kunde
    user user-id userId client_no memberId Member_Number EmployeeNumber Mitarbeiter_ID MitarbeiterNr person_id
    Personalnummer internal_customer_id author subject_id account_id ID_Kunde IDPatient"""


@pytest.mark.parametrize("name", PEOPLE.split())
def test_a_column_that_tells_people_apart_is_proposed_as_the_owner(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.csv").write_text(f"ticket_id,{name},customer_type,note\n")
    text = init(str(tmp_path / "t.csv"))
    assert f"\n# owner: {name}\n" in text or f'\n# owner: "{name}"\n' in text
    assert 'identify rows: "ticket_id"\n' in text


@pytest.mark.parametrize(
    "name", ["customer_type", "user_agent", "path_id", "pattern", "client_segment", "subject", "patch"]
)
def test_a_column_about_people_is_no_owner(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.csv").write_text(f"note,{name}\n")
    assert "\n# owner: COLUMN\n" in init(str(tmp_path / "t.csv"))


def test_the_likeliest_owner_is_proposed_and_others_are_said_to_tell_people_apart(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("customer_name,employee_id,customer_id,note\n")
    text = init(str(tmp_path / "t.csv"))
    assert "\n# owner: customer_id\n" in text
    assert 'identify people: "customer_name", "employee_id"\n' in text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (name, "number")
            for name in ("amount", "Rechnungsbetrag", "unitPrice", "Total (EUR)", "product_price", "fees")
        ),
        *((name, "integer") for name in ("age", "Alter", "item_count")),
        *((name, "date") for name in ("Rechnungsdatum", "updated_at", "birth_date")),
        *((name, None) for name in ("candidate", "update_type", "stage", "country", "discounted_class")),
    ],
)
def test_kinds_are_told_by_names_whatever_the_file_holds(tmp_path: Path, name: str, kind: str | None) -> None:
    pq.write_table(pa.table({"note": ["a"], name: ["1.200,50"]}), tmp_path / "t.parquet")
    text = init(str(tmp_path / "t.parquet"))
    assert (f"{name}: {{kind: {kind}," in text or f'"{name}": {{kind: {kind},' in text) is (kind is not None)


NASTY = (
    *(
        "a, b",
        "a: b",
        'say "hi"',
        "it's",
        " lead",
        "trail ",
        "x=1",
        "@file",
        "#tag",
        "no",
        "yes",
        "null",
        "2023",
        "1.5",
    ),
    *(
        "~",
        "- item",
        "{a}",
        "[a]",
        "a|b",
        "a;b*c",
        "%",
        "`x`",
        "*star",
        "&anchor",
        "!tag",
        "? q",
        "key: #v",
        "a\\b",
        '"q"',
    ),
    *("true", "a..b", "'single'", "> fold", "---", "0x1f", "2024-01-01", ".inf", "診断, Größe"),
)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("name", NASTY)
def test_what_is_drafted_is_read_again_whatever_columns_and_labels_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for texts, labelled in ((name, "other"), ("note", name)):
        table = pa.table({texts: ["hello there"], labelled: [name]})
        if form == "csv":
            with open("t.csv", "w", newline="", encoding="utf-8") as file:  # noqa: PTH123
                csv.writer(file).writerows([table.column_names, ["hello there", name]])
        else:
            pq.write_table(table, "t.parquet")
        drafted = yaml.safe_load(init(f"t.{form}", "--names-are-public"))
        if texts == name and drafted["text"] == "COLUMN":
            drafted["text"] = [name]
        Path("t.yaml").write_text(yaml.safe_dump({**drafted, "label": labelled, "labels": [name]}))
        done = CliRunner().invoke(cli, ["check", "--config", "t.yaml", "--output", "out"], catch_exceptions=False)
        assert "matches its declaration" in done.output


@pytest.mark.parametrize("name", ["t.xlsx", "t.ods", "t.xls"])
def test_a_workbook_is_told_to_be_saved_as_csv(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(UnderstudyError, match="save the sheet as CSV"):
        init(str(tmp_path / name))
