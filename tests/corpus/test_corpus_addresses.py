"""Tables in object stores are read like those on this machine, and no credential gets into an address or an error."""

from __future__ import annotations

import gzip
import io
import pickle
import random
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_tables import COMPRESS, everything_in, rows_of, texts_of

from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import Corpus, read_corpus
from understudy.corpus.sources import asked, find_files, parse_address
from understudy.corpus.verified import VerifiedCorpus, contents
from understudy.run.settings import RunConfig

KEY = b"key"
NOTES = [f"note {number}, öh" for number in range(500)]
CSV = ("note,ward\n" + "".join(f'"{note}",{"ab"[i % 2]}\n' for i, note in enumerate(NOTES))).encode()
JSONL = "".join(f'{{"note": "{note}", "ward": "{"ab"[i % 2]}"}}\n' for i, note in enumerate(NOTES)).encode()
Store = Callable[[str, bytes], str]


def parquet(table: pa.Table, **options: object) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


TABLES = {
    **{f"csv.{ending}": compress(CSV) for ending, compress in COMPRESS.items()},
    **{"csv": CSV, "jsonl": JSONL, "jsonl.gz": gzip.compress(JSONL)},
    "parquet": parquet(pa.table({"note": NOTES, "ward": ["ab"[i % 2] for i in range(500)]}), row_group_size=100),
}


def read(source: object, **changes: object) -> Corpus:
    return read_corpus(source, **{"text": "note", "label": "ward", "labels": "a,b", **changes})  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("ending", TABLES)
def test_a_table_in_a_store_is_the_same_as_on_this_machine(tmp_path: Path, store: Store, ending: str) -> None:
    (tmp_path / f"t.{ending}").write_bytes(TABLES[ending])
    here, there = read(tmp_path / f"t.{ending}"), read(store(f"a/t.{ending}", TABLES[ending]))
    assert rows_of(here) == rows_of(there)
    assert here.identity(KEY) == there.identity(KEY)
    assert contents(here, KEY).pieces[0][1] == contents(there, KEY).pieces[0][1]


def test_folders_patterns_and_partitions_of_a_store(bucket: str, store: Store) -> None:
    for key in ("t/year=1/a.csv", "t/year=1/b.csv.gz", "t/year=2/a.csv"):
        text = f"note\n{key}\n".encode()
        store(key, gzip.compress(text) if key.endswith("gz") else text)
    store("t/_SUCCESS", b"")
    store("t/year=1/.hidden.csv", b"note\nhidden\n")
    rows = [("t/year=1/a.csv", "1"), ("t/year=1/b.csv.gz", "1"), ("t/year=2/a.csv", "2")]
    for source in ("t", "t/", "t/*/*", "t/**/*.csv*", "t/year=[12]/*"):
        assert rows_of(read(f"{bucket}/{source}", label="year", labels="1,2")) == rows, source
    assert rows_of(read(f"{bucket}/t/*/a.csv", label="year", labels="1,2")) == [rows[0], rows[2]]
    twice = [f"{bucket}/t/year=2", f"{bucket}/t/year=2/a.csv"]
    assert texts_of(read_corpus(twice, text="note")) == [rows[2][0]]
    with pytest.raises(CorpusError, match="Two files of the private table have the same content"):
        read_corpus([twice[0], f"{twice[1]}?region=us-east-1"], text="note").identity(KEY)
    assert texts_of(read_corpus(bucket, text="note")) == [text for text, _ in rows]


@pytest.mark.parametrize("key", ["a b.csv", "a%20b.csv", "a+b#c&d=e.csv", "year=2024/ö.csv", "a[1].csv", "a@b:c.csv"])
def test_a_key_is_taken_literally(store: Store, key: str) -> None:
    assert texts_of(read_corpus(store(key, b"note\nhello\n"), text="note")) == ["hello"]


def test_tables_with_a_log_are_refused_in_stores_too(bucket: str, store: Store) -> None:
    table = parquet(pa.table({"note": ["deleted"]}))
    for number, log in enumerate(("", "_delta_log/0.json", ".hoodie/x", "metadata/v1.metadata.json")):
        lake = f"{bucket}/lake{number}"
        sources = [store(f"lake{number}/t/year=1/p.parquet", table), lake, f"{lake}/t", f"{lake}/t/*/*.parquet"]
        if not log:
            assert {tuple(texts_of(read_corpus(source, text="note"))) for source in sources} == {("deleted",)}
            continue
        store(f"lake{number}/t/{log}", b"{}")
        for source in sources:
            with pytest.raises(ConfigError, match="Delta Lake, Iceberg or Hudi"):
                read_corpus(source, text="note")


def test_what_changes_in_a_store_while_it_is_read_is_noticed(bucket: str, store: Store) -> None:
    store("t/a.csv", CSV)
    corpus = read(f"{bucket}/t")
    steady = VerifiedCorpus(corpus, key=KEY, expected=contents(corpus, KEY))
    store("t/b.csv", CSV)
    assert texts_of(steady) == NOTES  # found once
    store("t/a.csv", CSV.replace(b"note 77,", b"note 78,"))
    with pytest.raises(CorpusError, match="changed while the run was reading them"):
        texts_of(steady)


def test_a_files_description_pickles_without_credentials_and_reads_elsewhere(store: Store) -> None:
    (file,) = find_files([store("t.csv.gz", TABLES["csv.gz"])], format=None)
    pickled = pickle.dumps(file)
    assert b"zebra" not in pickled.lower()
    with pickle.loads(pickled).open() as stream:
        assert stream.read() == CSV


def test_memory_holds_a_part_of_a_parquet_file_in_a_store(store: Store) -> None:
    words = [f"{number:01000d}" for number in range(40_000)]
    source = store(
        "t.parquet", parquet(pa.table({"note": words}), compression="none", use_dictionary=False, row_group_size=4000)
    )
    before, highest = pa.total_allocated_bytes(), 0
    for _ in read_corpus(source, text="note").batches(1000):
        highest = max(highest, pa.total_allocated_bytes() - before)
    assert highest < 16_000_000  # of 40,000,000


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.bz2", "csv.xz", "csv.zst", "jsonl"])
def test_a_store_is_asked_for_much_at_once(store: Store, ending: str, caplog: pytest.LogCaptureFixture) -> None:
    words = [random.Random(number).randbytes(500).hex() for number in range(1000)]
    jsonl = ending == "jsonl"
    text = "".join(f'{{"note": "{word}"}}\n' if jsonl else f"{word}\n" for word in ([] if jsonl else ["note"]) + words)
    compress = COMPRESS.get(ending.rpartition(".")[2], bytes)
    corpus = read_corpus(store(f"t.{ending}", compress(text.encode())), text="note")
    caplog.clear()
    with caplog.at_level("INFO", logger="werkzeug"):
        assert texts_of(corpus) == words
    assert sum("GET" in record.getMessage() for record in caplog.records) in range(1, 4)  # of a megabyte


def test_what_is_not_there_is_one_error(bucket: str, store: Store) -> None:
    store("t/a.csv", CSV)
    for source in (f"{bucket}/absent.csv", f"{bucket}-other/t/a.csv"):
        with pytest.raises(CorpusError, match="There is no file"):
            read(source)
    with pytest.raises(CorpusError, match="No file matches"):
        read(f"{bucket}/t/*.jsonl")
    with pytest.raises(CorpusError, match="no such bucket"):
        read(f"{bucket}-other/t/*.csv")


def test_a_damaged_object_is_one_error_without_its_contents(store: Store, private: Path) -> None:
    source = store("Zebra.csv.gz", gzip.compress(CSV)[:-500]).replace("Zebra", "*")
    with pytest.raises(CorpusError, match=r"cannot be read: .*truncated") as caught:
        texts_of(read(source, private_dir=private))
    assert "Zebra" not in everything_in(caught.value)
    assert "Zebra.csv.gz" in (private / "bad_rows.jsonl").read_text()


@pytest.fixture
def locked(s3_server: str) -> Iterator[None]:
    """The store refuses the credentials."""

    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def after(requests: str) -> None:
        url, head = f"{s3_server}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        direct.open(urllib.request.Request(url, requests.encode(), head, method="POST")).close()

    after("0")
    yield
    after("inf")


def test_a_denied_access_is_one_error_without_credentials_or_what_the_store_says(
    bucket: str, store: Store, request: pytest.FixtureRequest
) -> None:
    source, opened = store("t/a.csv", CSV), read(f"{bucket}/t")
    request.getfixturevalue("locked")
    for use in (lambda: read(source), lambda: read(f"{bucket}/t/*.csv"), lambda: texts_of(opened)):
        with pytest.raises(CorpusError, match="access is denied") as caught:
            use()
        for secret in ("zebra", "request id", "provided", "headobject", "listobjects", "127.0.0.1"):
            assert secret not in everything_in(caught.value).lower()


@pytest.mark.parametrize(
    "address",
    [
        *("s3://AKIA:Zebra@bucket/t.csv", "s3://AKIA%3AZebra%40bucket/t.csv", "s3://Zebra@bucket/t.csv"),
        *("s3://bucket/t.csv?access_key=a&secret_key=Zebra", "s3://bucket/t.csv?region=eu&Zebra=1", "s3://bucket/t.csv?Zebra"),
        *("s3://bucket/t.csv?endpoint_override=http://u:Zebra@h:1", "s3://bucket?endpoint_override=u%3AZebra%40h"),
        *("gs://u:Zebra@bucket/t.csv", "gcs://bucket/t.csv?json_credentials=Zebra"),
        *("abfs://c:Zebra@a.dfs.core.windows.net/t.csv", "abfss://c@a.dfs.core.windows.net/t.csv?client_secret=Zebra"),
        *("abfss://c@a.dfs.core.windows.net/t.csv?sv=1&sig=Zebra", "s3:///Zebra.csv", "s3://Zebra*/t.csv"),
    ],
)  # fmt: skip
def test_an_address_with_a_credential_is_refused_and_never_repeated(address: str) -> None:
    for use in (
        lambda: read_corpus(address, text="note"),
        lambda: RunConfig(data=address),
        lambda: RunConfig(data=["a.csv", address]),
    ):
        with pytest.raises(ConfigError) as caught:
            use()
        assert "Zebra" not in everything_in(caught.value)
        assert "environment" in caught.value.cure


@pytest.mark.parametrize(
    ("shown", "store", "key"),
    [
        ("s3://b/p/x.csv", "s3://b", "p/x.csv"),
        ("s3://b/p/x.csv?region=eu-west-1&scheme=http", "s3://b?region=eu-west-1&scheme=http", "p/x.csv"),
        ("s3://b?endpoint_override=http://localhost:9000", "s3://b?endpoint_override=http://localhost:9000", ""),
        ("gs://b/", "gs://b", ""),
        ("abfss://c@a.dfs.core.windows.net/p", "abfss://c@a.dfs.core.windows.net", "p"),
        ("abfs://a@127.0.0.1:10000/c/p?enable_tls=false", "abfs://a@127.0.0.1:10000?enable_tls=false", "c/p"),
    ],
)
def test_an_address_has_a_store_and_a_key(shown: str, store: str, key: str) -> None:
    assert parse_address(shown) == (store, key)


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("s3://b/p/x.csv?region=eu-west-1", "b/p/x.csv"),
        ("gs://b/p/", "b/p"),
        ("abfss://c@a.dfs.core.windows.net/p/x.csv", "c/p/x.csv"),
        ("abfss://a.blob.core.windows.net/c/p/x.csv", "c/p/x.csv"),
    ],
)
def test_every_store_has_a_file_system(address: str, path: str) -> None:
    found = parse_address(address)
    assert found is not None
    assert found.path == path


def test_an_account_alone_is_no_table() -> None:
    with pytest.raises(ConfigError, match="no container"):
        read_corpus("abfs://account.blob.core.windows.net", text="note")


@pytest.mark.parametrize(
    "shown", ["notes.csv", "https://h/x", "s3:/b/x", "-", "/s3://b", "S3://b", "s3a://b/x", "hdfs://h/x"]
)
def test_anything_else_is_no_address_that_is_read(shown: str) -> None:
    assert parse_address(shown) is None


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/t.csv?endpoint_override=http://127.0.0.1:1&region=us-east-1",
        "abfs://account@127.0.0.1:1/container/t.csv?enable_tls=false&credential_kind=anonymous",
    ],
)
@pytest.mark.usefixtures("bucket")
def test_a_store_that_does_not_answer_is_one_error(address: str) -> None:
    with pytest.raises(CorpusError, match="there is no connection") as caught:
        read_corpus(address, text="note")
    assert "curl" not in everything_in(caught.value).lower()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("AWS Error ACCESS_DENIED during HeadObject operation: Zebra", "access is denied"),
        ("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation: Zebra", "no such bucket"),
        ("AWS Error NETWORK_CONNECTION: curlCode: 7, Zebra", "no connection"),
        ("Zebra", "cannot be read."),
    ],
)
def test_of_a_stores_message_only_our_own_words_are_shown(said: str, told: str) -> None:
    def fail() -> None:
        raise OSError(said)

    with pytest.raises(CorpusError, match=told) as caught:
        asked("s3://b/x", fail)
    assert "Zebra" not in everything_in(caught.value)
