"""The page: complete, escaped, self-contained, and the same for the same input."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import made_runs
import pytest
from click.testing import CliRunner, Result

from understudy.base.display import printable
from understudy.base.errors import ConfigError, ModelError, UnderstudyWarning
from understudy.cli import cli
from understudy.privacy.exact import as_typed
from understudy.report import write_reports
from understudy.report.page import policy
from understudy.run.outputs import FORMATS, OutputFolder

NASTY = [
    "<script>alert('x')</script>",
    '</script><img src=x onerror="alert(1)"> & "quotes"',
    "\u202emirrored\u2066 text\u2069 and مرحبا שלום",
    "w" * 3000,
    "👩‍⚕️ says 🫀 is fine",
    "   ",
    "null \x00\x07 control",
    "{{ contents.statement }} {% raw %}",
    "<!-- --> ]]> \u2028 \u2029",
]


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text outside of script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def shareable(folder: OutputFolder) -> str:
    return write_reports(folder, embedder=None).shareable.read_text("utf-8")


def internal(folder: OutputFolder) -> str:
    path = write_reports(folder, embedder=None).internal
    assert path is not None
    return path.read_text("utf-8")


class Pages(NamedTuple):
    """Both reports of a measured run, for tests that only read."""

    folder: OutputFolder
    shareable: str
    internal: str


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder = made_runs.make_run(tmp_path_factory.mktemp("measured") / "run")
    made_runs.measure(folder)
    return Pages(folder, shareable(folder), internal(folder))


@pytest.fixture
def measured(tmp_path: Path) -> OutputFolder:
    folder = made_runs.make_run(tmp_path / "run")
    made_runs.measure(folder)
    return folder


def test_every_section_is_in_the_internal_report(pages: Pages) -> None:
    text = pages.internal
    names = "promise budget corpus map samples utility fidelity leakage audit reproduce limits"
    assert re.findall(r'<section id="(\w+)"', text) == names.split()


def test_the_curve_names_the_statement_s_own_figure_rounded_up(pages: Pages) -> None:
    assert 0.1292 < made_runs.made_statement().power < 0.1293
    assert "1 % wrong, 12.93 % right" in pages.shareable


def test_every_metric_has_its_definition_and_source_with_ceiling_and_floor(pages: Pages) -> None:
    text = Elements(pages.internal).text
    for metric in (made_runs.ACCURACY, made_runs.FRECHET, made_runs.COPIED):
        assert metric.definition in text
        assert metric.source in text
    for words in ("synthetic texts", "baseline", "as many real texts", "all real texts", "0.900", "0.880 to 0.930"):
        assert words in text


def test_the_audit_is_shown_beside_the_promise(measured: OutputFolder) -> None:
    assert "A low bound is not a proof" in internal(measured)
    made_runs.made_audit(bound=7.5).save(measured.audit_file)
    assert "The run leaks more than is promised" in internal(measured)


def test_nothing_in_a_text_becomes_markup(tmp_path: Path) -> None:
    folder = made_runs.make_run(tmp_path / "run", [(text, place % 3) for place, text in enumerate(NASTY * 2)])
    made_runs.measure(folder, overview=made_runs.made_overview(text="".join(NASTY)))
    for text in (shareable(folder), internal(folder)):
        page = Elements(text)
        assert not page.named("img")
        kinds = [script.get("type") for script in page.named("script")]
        assert sorted(kinds, key=str) == [None, "application/json"]
        assert not [name for _, attributes in page.found for name in attributes if name.startswith("on")]
    data = re.search(r'id="map-texts">(.*?)</script>', shareable(folder), re.DOTALL)
    assert data is not None
    assert NASTY[1] in {point["text"] for point in json.loads(data[1])}


def test_no_control_character_reaches_a_page_and_each_is_shown(tmp_path: Path) -> None:
    turning = [0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]  # the direction of words
    controls = "".join(map(chr, [*range(9), 11, 12, *range(14, 32), *range(127, 160), 0xFFFE, 0xFDD0, *turning]))
    text = f"before{controls}after"
    folder = made_runs.make_run(tmp_path / "run", [(text, place % 3) for place in range(6)])
    made_runs.measure(folder, overview=made_runs.made_overview(text=text))
    assert not set(printable(text)) & set(map(chr, turning))
    for page in (shareable(folder), internal(folder)):
        assert not set(page) & set(controls)
        assert "before\u2400\u2401" in page
        assert "\\u061c\\u200e\\u200f\\u202a" in page
        data = re.search(r'id="map-texts">(.*?)</script>', page, re.DOTALL)
        assert data is None or not any(set(point["text"]) & set(controls) for point in json.loads(data[1]))


def test_a_record_is_shown_field_by_field(tmp_path: Path) -> None:
    record = {"question": "Why <b>?", "stars": 4, "tags": ["a", None]}
    page = Elements(
        shareable(made_runs.make_run(tmp_path / "run", [(json.dumps(record), 0), ("[1, 2]", 0), ('{"a": ', 0)]))
    )
    assert not page.named("b")
    for words in ("question", "Why <b>?", "stars", '["a", null]', "[1, 2]"):
        assert words in page.text


def test_a_statement_s_words_are_escaped(tmp_path: Path) -> None:
    folder = made_runs.make_run(tmp_path / "run")
    path = folder.shareable / "statement.json"
    path.write_text(path.read_text("utf-8").replace("clinic", "<b>clinic</b>"), "utf-8")
    assert not Elements(shareable(folder)).named("b")


def test_the_page_names_no_place_outside_of_itself(pages: Pages) -> None:
    for text in (pages.shareable, pages.internal):
        page = Elements(text)
        links = [
            str(value) for _, attributes in page.found for name, value in attributes.items() if name in ("href", "src")
        ]
        assert links
        assert all(link.startswith("#") for link in links)
        assert "url(" not in text
        assert str(pages.folder.root.parent) not in text


def test_the_policy_allows_this_style_and_this_script_alone(pages: Pages) -> None:
    text = pages.shareable
    stated = next(meta["content"] for meta in Elements(text).named("meta") if "http-equiv" in meta)
    for tag in ("style", "script"):
        inline = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert inline is not None
        digest = base64.b64encode(hashlib.sha256(inline[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in str(stated)
    assert str(stated).startswith("default-src 'none'; ")
    assert policy("a", "b") != policy("a", "c")
    assert not re.findall(r"<[^>]* style=", text)


def test_a_screen_reader_is_told_what_charts_and_tables_are_and_ids_are_unique(pages: Pages) -> None:
    text, page = pages.internal, Elements(pages.internal)
    charts = re.findall(r'<svg class="chart".*?</svg>', text, re.DOTALL)
    assert len(charts) >= 5
    for chart in charts:
        assert 'role="img"' in chart
        assert re.search(r"<title [^>]*>[^<]{5,}</title><desc [^>]*>[^<]{20,}</desc>", chart)
    assert text.count("<table") == text.count("<caption") >= 8
    assert all("scope" in attributes for attributes in page.named("th"))
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for _, attributes in page.found:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set((attributes.get(name) or "").split()) <= set(ids)
        if (attributes.get("href") or "").startswith("#"):
            assert str(attributes["href"])[1:] in ids


def test_the_same_run_and_seed_give_the_same_page_and_another_seed_shows_other_texts(measured: OutputFolder) -> None:
    assert shareable(measured) == shareable(measured)
    assert internal(measured) == internal(measured)
    assert write_reports(measured, embedder=None, seed=1).shareable.read_text("utf-8") != shareable(measured)


def test_a_page_with_long_texts_and_all_points_is_below_three_megabytes(tmp_path: Path) -> None:
    folder = made_runs.make_run(tmp_path / "run", [("word " * 2_000 + str(place), place % 3) for place in range(12)])
    made_runs.measure(folder, overview=made_runs.made_overview(1500, text="m" * 20_000))
    assert len(internal(folder).encode()) < 3_000_000


@pytest.mark.parametrize("output_format", FORMATS)
def test_tables_of_every_format_are_read(tmp_path: Path, output_format: str) -> None:
    texts = [('Two\r\nlines, "quoted"\u2028', 0), ("plain", 1)]
    text = Elements(shareable(made_runs.make_run(tmp_path / "run", texts, output_format=output_format))).text
    lines = 'Two lines, "quoted"\u2028' if output_format == "tsv" else 'Two\nlines, "quoted"\u2028'
    assert lines in text.replace("\r\n", "\n")
    for words in ("plain", made_runs.LABELS[0], made_runs.LABELS[1], "chest pain", "builtin:tiny"):
        assert words in text


def test_a_release_without_texts_and_texts_without_a_release_have_a_shareable_report(tmp_path: Path) -> None:
    text = shareable(made_runs.make_run(tmp_path / "run", []))
    assert "No synthetic texts yet" in text
    assert '<section id="map"' not in text
    folder = made_runs.make_run(tmp_path / "generated")
    (folder.shareable / "dp-kps.release").unlink()
    assert "terms.txt" in shareable(folder)
    assert write_reports(folder, embedder=None).internal is None, "nothing was measured"


def test_a_run_without_noise_is_stamped(tmp_path: Path) -> None:
    folder = made_runs.make_run(tmp_path / "charged")
    made_runs.charge_metrics(folder, private=False)
    assert "NOT PRIVATE" in shareable(folder)
    text = shareable(made_runs.make_run(tmp_path / "run", statement=made_runs.made_statement(private=False)))
    assert "NOT PRIVATE" in text
    assert "With or without any one unit" not in text
    assert "The best that an attacker can do" not in text
    assert ">shareable<" not in text
    assert "Booked" not in text


def test_a_run_that_protects_secrets_states_prior_and_posterior(tmp_path: Path) -> None:
    text = Elements(
        shareable(made_runs.make_run(tmp_path / "run", statement=made_runs.made_statement(secret=True)))
    ).text
    for words in ("prior", "posterior", "highest posterior", "This is not differential privacy of a record"):
        assert words in text


def test_without_the_extra_there_is_a_page_without_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ConfigError("Evaluation needs the extra 'evaluate' (missing: sklearn).", "Install it.")

    from understudy.report import contents

    monkeypatch.setattr(contents, "require_evaluate", missing)
    text = shareable(made_runs.make_run(tmp_path / "run"))
    assert "The map is missing: evaluation needs the extra" in text
    assert "Labels" in text


def test_what_the_figures_cost_stands_beside_the_promise(tmp_path: Path) -> None:
    folder = made_runs.make_run(tmp_path / "run")
    assert "for metrics" not in shareable(folder)
    made_runs.charge_metrics(folder)
    text = shareable(folder)
    budget = json.loads(folder.metrics_file.read_text("utf-8"))["budget"]["epsilon"]
    statement = json.loads((folder.shareable / "statement.json").read_text("utf-8"))
    told = re.search(
        r"For someone who has both, the bound is epsilon = (\S+) at the same delta, and at most (\S+) in 100", text
    )
    assert told is not None
    assert Fraction(told[1]) == Fraction(budget) + Fraction(statement["budget"]["epsilon"])
    alone = 100 * statement["power_at_1_percent_false_alarms"]
    assert alone <= float(told[2]) <= alone * math.exp(Fraction(budget)) + 0.01
    assert f"+ {as_typed(Fraction(budget))} for metrics" in text


def test_settings_are_told_without_the_folders_of_this_machine(measured: OutputFolder) -> None:
    path = measured.evaluation_file
    path.write_text(path.read_text("utf-8").replace('"seeds": 5', '"json_schema": "/home/ann/schema.json"'), "utf-8")
    text = internal(measured)
    assert "schema.json" in text
    assert "/home/ann" not in text


def test_a_damaged_table_is_said_to_be_so(measured: OutputFolder) -> None:
    (measured.shareable / "synthetic.parquet").write_text("no parquet", "utf-8")
    with pytest.raises(ConfigError, match=r"synthetic\.parquet cannot be read"):
        write_reports(measured, embedder=None)


@pytest.mark.parametrize("name", ["release/metrics.json", "private/evaluation.json"])
def test_figures_of_another_table_are_not_shown(measured: OutputFolder, name: str) -> None:
    made_runs.charge_metrics(measured)
    (path,) = measured.shareable.glob("synthetic.*")
    path.rename(measured.root / "old.parquet")
    made_runs.make_run(measured.root / "other", [("Another text.", 0)]).synthetic_file("parquet").rename(path)
    (measured.metrics_file if name.startswith("private") else measured.evaluation_file).unlink()
    with pytest.raises(ConfigError, match="a synthetic table that is no longer in the folder") as caught:
        write_reports(measured, embedder=None)
    assert name in caught.value.problem
    assert name in caught.value.cure


def test_values_that_do_not_tell_their_table_are_shown(measured: OutputFolder) -> None:
    path = measured.evaluation_file
    path.write_text(path.read_text("utf-8").replace("table_sha256", "older"), "utf-8")
    (table,) = measured.shareable.glob("synthetic.*")
    table.unlink()
    made_runs.make_run(measured.root / "other", [("Another text.", 0)]).synthetic_file("parquet").rename(table)
    assert "0.900" in internal(measured)


def test_texts_that_are_their_phrases_are_shown_once(tmp_path: Path) -> None:
    bare = shareable(made_runs.make_run(tmp_path / "bare", [("chest pain, murmur", 0)]))
    assert 'class="phrase"' not in bare
    assert 'class="phrase"' in shareable(made_runs.make_run(tmp_path / "run", [("chest pain and a murmur", 0)]))


def test_few_texts_are_said_to_say_little(measured: OutputFolder) -> None:
    assert "based on only 30 texts per table" in internal(measured)
    assert "depend much on which" not in shareable(measured)
    overview = made_runs.made_overview()
    many = {of: replace(profile, texts=400) for of, profile in overview.profiles.items()}
    made_runs.measure(measured, overview=replace(overview, profiles=many))
    assert "depend much on which" not in internal(measured)


def test_how_to_make_them_again_names_the_verb_that_does(tmp_path: Path) -> None:
    assert "understudy run --config" in shareable(made_runs.make_run(tmp_path / "run"))
    assert "understudy release --config" in shareable(made_runs.make_run(tmp_path / "release", []))


# -- the shareable report holds nothing of the private half; the internal one does, and stays inside ------------------


def test_no_string_of_the_private_half_is_in_the_shareable_report(measured: OutputFolder) -> None:
    with_it = shareable(measured)
    assert made_runs.PLANTED not in with_it
    shutil.rmtree(measured.private)
    assert shareable(measured) == with_it


def test_the_internal_report_shows_the_private_half_to_its_owner_alone(pages: Pages) -> None:
    """So that the test above can fail."""
    assert pages.internal.count(made_runs.PLANTED) > 60
    assert "internal" in pages.internal
    assert pages.folder.internal_report_file.stat().st_mode & 0o077 == 0
    assert pages.folder.internal_report_file.parent == pages.folder.private


def test_figures_with_a_charge_are_in_the_shareable_report_with_their_price(measured: OutputFolder) -> None:
    assert "0.750" not in shareable(measured)
    made_runs.charge_metrics(measured)
    text = shareable(measured)
    for words in ("0.750", "epsilon = 0.5", "real, with noise", "50.0 %"):
        assert words in text
    assert "Label share" not in text, "the labels stand beside the synthetic ones, and only once"


def test_a_new_release_takes_an_old_report_away(measured: OutputFolder) -> None:
    made_runs.charge_metrics(measured)
    write_reports(measured, embedder=None)
    measured.clear()
    assert not measured.report_file.exists()
    assert not (measured.shareable / "metrics.json").exists()


def test_half_a_character_in_a_text_is_shown_as_one_that_cannot_be(tmp_path: Path) -> None:
    folder = made_runs.make_run(tmp_path / "run")
    for path in folder.shareable.glob("synthetic.*"):
        path.unlink()
    (folder.shareable / "synthetic.jsonl").write_text('{"note": "half \\ud800 a pair", "department": null}\n', "utf-8")
    assert "half \ufffd a pair" in shareable(folder)


pytestmark = [
    pytest.mark.usefixtures("no_models"),
    pytest.mark.filterwarnings("ignore:Built-in embedding:understudy.base.errors.UnderstudyWarning"),
]


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["report", *map(str, words)])


def test_it_writes_both_reports_and_prints_where_they_are(tmp_path: Path) -> None:
    folder = made_runs.make_run(tmp_path / "run")
    made_runs.measure(folder)
    with pytest.warns(UnderstudyWarning, match="Built-in embedding model not installed; using TF-IDF."):
        result = call(folder.root)
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [str(folder.report_file), str(folder.internal_report_file)]
    assert all(Path(line).exists() for line in result.stdout.split())


def test_of_several_runs_it_writes_one_each(tmp_path: Path) -> None:
    folders = [made_runs.make_run(tmp_path / name) for name in ("a", "b")]
    assert call(*(folder.root for folder in folders)).stdout.split() == [str(each.report_file) for each in folders]


def test_a_folder_that_is_no_run_is_an_error_with_a_cure(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing", Path(__file__)):
        error = call(path, "--embedder", "not looked for").exception
        assert isinstance(error, ConfigError)
        assert "not the folder of a run" in error.problem


def test_an_embedder_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    error = call(made_runs.make_run(tmp_path / "run").root, "--embedder", "hf:none/such").exception
    assert isinstance(error, ModelError)
