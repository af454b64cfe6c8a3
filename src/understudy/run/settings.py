"""The configuration behind YAML, flags and Python: flat names, strict, with a JSON Schema.

The groups below are the sections of ``--help``. A run's configuration is one flat mapping: the fields of the groups
and of the method's parameters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BeforeValidator, Field, WithJsonSchema, create_model, field_validator, model_validator

from understudy.base.errors import ConfigError, LedgerError, did_you_mean
from understudy.base.files import MOST_SETTINGS_BYTES, UnreadableText, read_whole
from understudy.base.parameters import LISTED, Ablation, CommaSeparated, Free, OneOrSeveral, Parameters, is_free
from understudy.corpus.read import exactly_named
from understudy.corpus.sources import parse_address
from understudy.methods.additions.columns.variables import RowsParameters, TablesParameters
from understudy.methods.additions.guide.plan import ChoosingParameters, GuideParameters
from understudy.methods.additions.registry import ADDITIONS
from understudy.methods.additions.topics.labelling import LabellingParameters
from understudy.methods.base import Method
from understudy.methods.registry import make_method, method_class
from understudy.models.presets import require_extra_body
from understudy.privacy.exact import typed
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseSource, SystemNoise
from understudy.privacy.sealed import SYSTEM
from understudy.privacy.unit import Unit, recognised_by
from understudy.schema.columns import Column, cross_labels, crossed_columns, declared_columns, read_columns
from understudy.schema.labels import LabelSet, canonical, declared_labels
from understudy.schema.transcript import TextForm, text_columns
from understudy.text.prompts.template import WritingParameters
from understudy.text.vocabulary.terms import LANGUAGES

DEFAULT_METHOD = "dp-kps"
MOST_RECORDS = 10_000_000
"""Largest number of records of a synthetic table, which is kept in memory while it is made."""


T = TypeVar("T")
_OPERATIONAL = object()
Operational = Annotated[T, _OPERATIONAL]
"""A setting that a resumed run may change: it alters neither what is released nor what is written."""


def _columns_of_text(value: object) -> object:
    """Return one column as its name, several as a tuple."""
    if value is not None and not isinstance(value, str | list | tuple):
        raise ValueError("expected a column, or several")
    columns = text_columns(value)
    if not all(isinstance(name, str) for name in columns):
        raise ValueError("expected names of columns")
    return columns[0] if len(columns) == 1 and text_columns(columns[0]) == columns else columns or None


TextColumns = Annotated[
    str | tuple[str, ...] | None,
    BeforeValidator(_columns_of_text),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
]
"""One column, or several."""

ExactNumber = Annotated[
    str | None,
    BeforeValidator(lambda value: value if value is None else typed(value)),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]}),
]
"""A number of a budget as text, exactly as it was typed."""


class OwnerParameters(Parameters):
    """The owners of the records."""

    owner: str | None = None
    """Column of the owners: protects all records of an owner together."""
    max_records_per_owner: int = Field(5, ge=1, le=10_000)
    """Contribution bound: records of one owner that are used."""


class TableParameters(OwnerParameters):
    """The columns of the private table, and how its rows are read."""

    text: TextColumns = None
    """Column of the texts; or several columns, as ``A,B,C``, that are written together and stay separate."""
    roles: CommaSeparated = ()
    """Roles of the speakers if the texts are dialogues: lists of ``{"role": ..., "content": ...}``, in CSV as JSON."""
    acts: CommaSeparated = ()
    """Values of ``act`` that turns of a dialogue may have."""
    tools: CommaSeparated = ()
    """Tools that the speakers may call, if turns have ``tool_calls`` as in chat formats."""
    record_columns: CommaSeparated = ()
    """Columns that together form a JSON record, which is the text."""
    label: str | None = None
    """Column of the labels. A typed column, or several as ``A*B``, makes their combinations the labels."""
    labels: str | tuple[str | int | float | bool, ...] | None = None
    """The declared label set: a list, ``A,B,C``, or ``@FILE``."""
    labels_from_data: bool = False
    """Read the label set from the data (it is then not protected)."""
    columns: str | dict[str, Any] | None = None
    """Typed columns next to the text, each with its declared domain: ``"priority=low|high; paid=0.0..99.9/20; urgent;
    opened=2024-01-01..2024-12-31/12; id=identifier P-####"``, or ``@FILE`` in YAML (docs/tables.md)."""
    formats: Ablation[Operational[str | dict[str, Any] | None]] = None
    """How typed columns are written in CSV and JSON lines: ``de`` (31.12.2024, 1.234,56, ja/nein), ``fr``, ``en-GB``,
    ``en-US``, or ``{date: "%d.%m.%Y", number: "1.234,56", boolean: "ja|nein", missing: ["k. A."]}``."""
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None
    """File format, if the file's name does not say."""
    delimiter: str | None = None
    """Character that separates CSV cells; never guessed."""
    quotes: Literal["multiline", "line", "none"] | None = None
    """Meaning of CSV quotes: ``line`` keeps each row on one line. Default: ``multiline``; ``none`` for TSV."""
    encoding: str = "utf-8"
    """Encoding of CSV and JSONL."""
    max_bad_rows: Operational[float] = Field(0.0, ge=0, le=1)
    """Largest share of rows to skip because they cannot be used; if there are more, the run is refused before its
    charge. 0: the first such row is an error."""

    @field_validator("max_bad_rows", mode="before")
    @classmethod
    def _share(cls, value: Any) -> Any:
        if isinstance(value, int | float) and value > 1:
            raise ValueError("expected a share of the rows, 0 to 1 (0.05 is 5 %)")
        return value

    @model_validator(mode="before")
    @classmethod
    def _read_columns(cls, values: Any) -> Any:
        """Read a file of columns once; make the label set of a label that combines columns."""
        if not isinstance(values, dict) or not values.get("columns"):
            return values
        values = {**values, "columns": read_columns(values["columns"])}
        if values.get("formats") is not None:  # each column has its format from here on
            columns = declared_columns(values["columns"], values["formats"])
            values |= {"columns": {column.name: column.to_json() for column in columns}, "formats": None}
        if values.get("labels") is not None:
            return values
        label = values.get("label")
        crossed = crossed_columns(label if isinstance(label, str) else None, declared_columns(values["columns"]))
        return {**values, "labels": cross_labels(crossed)} if crossed else values

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """Return the declared columns."""
        return () if self.columns is None else declared_columns(self.columns)

    @property
    def crossed(self) -> tuple[Column, ...]:
        """Return the columns that the label is made of."""
        return crossed_columns(self.label, self.all_columns)

    @property
    def typed_columns(self) -> tuple[Column, ...]:
        """Return the other columns that are read."""
        return tuple(each for each in self.all_columns if each not in self.crossed and not each.made_up)

    @property
    def label_set(self) -> LabelSet:
        """Return the declared labels; none without labels, or if they are read from the data."""
        declared = () if self.labels is None else declared_labels(self.labels)
        return LabelSet(tuple(canonical(label) for label in declared))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Return the columns of the texts; none if records are the texts."""
        return text_columns(self.text)

    @property
    def form(self) -> TextForm:
        """Return the parts that a text has."""
        return TextForm(self.text_columns if len(self.text_columns) > 1 else (), self.roles, self.acts, self.tools)

    @property
    def reading(self) -> dict[str, Any]:
        """Return the fields that :func:`understudy.read_corpus` takes."""
        fields = self.model_dump(include=set(TableParameters.model_fields) - {"max_records_per_owner"})
        return {**fields, "on_bad_row": "skip" if self.skips_bad_rows else "error"}

    @property
    def skips_bad_rows(self) -> bool:
        return self.max_bad_rows > 0


class DataParameters(TableParameters):
    """The private table."""

    data: Operational[OneOrSeveral] = ()
    """Private files: CSV, TSV, JSONL or Parquet, also compressed; folders; globs; addresses (``s3://``, ``gs://``,
    ``abfs://``); ``-`` for standard input."""
    language: str | None = None
    """Language of the texts, as two letters of ISO 639-1: ``en``, ``de``, ... The built-in parts read English.
    Default: English if the declared labels or values, and the columns' names, are English words; otherwise an error
    asks for it before anything is charged."""

    @model_validator(mode="before")
    @classmethod
    def _exact_names(cls, values: Any) -> Any:
        """Read the header of the files if a comma in a setting may be part of a column's name."""
        return exactly_named(values.get("data"), values) if isinstance(values, dict) else values

    @field_validator("language")
    @classmethod
    def _code(cls, value: str | None) -> str | None:
        if value is not None and value not in LANGUAGES:
            raise ValueError("expected two letters of ISO 639-1, such as en, de or fr")
        return value

    @field_validator("data")
    @classmethod
    def _no_credentials(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse an address that contains a credential before it is stored or shown anywhere."""
        for each in value:
            parse_address(each)
        return value


class ProtectionParameters(OwnerParameters):
    """What is protected, and how strongly."""

    epsilon: ExactNumber = None
    """Privacy budget epsilon of this run, 1e-9 to 100000."""
    delta: ExactNumber = None
    """Privacy budget delta of this run, 1e-14 to 0.5; 0 for pure differential privacy. Default: a power of ten, at most
    1e-5 and at most a tenth of 1 over ``expected_records``."""
    secret_prior: ExactNumber = None
    """Secret protection instead of (epsilon, delta): the probability of guessing a secret before the release (p)."""
    secret_posterior: ExactNumber = None
    """The highest probability of guessing it after the release (r)."""
    secrets: CommaSeparated = ()
    """Columns that list a record's secrets, if secrets are protected."""
    secrets_file: str | None = None
    """A private file with one secret string per line."""
    secret_detectors: CommaSeparated = ()
    """Detectors that find secrets in the texts: ``email``, ``phone``, ``iban``, ... (docs/secrets.md)."""
    max_records_per_secret: int | None = Field(None, ge=1, le=1_000_000)
    """Most records that contain one secret (m): declared, and checked before anything is charged."""

    @property
    def budget(self) -> Budget | SecretBudget:
        """Return the run's budget."""
        if self.epsilon is None and self.delta is None and not self._protects_secrets:
            raise ConfigError(
                "No privacy budget given.",
                "Give --epsilon and --delta; to protect secrets, give --secret-prior and --secret-posterior.",
            )
        if not self._protects_secrets:
            return Budget(self.epsilon, self.delta)  # type: ignore[arg-type]  # None is an error with its own message
        if self.epsilon is not None or self.delta is not None:
            raise ConfigError(
                "Two kinds of budget are given, one for records or owners and one for secrets.",
                "Give --epsilon and --delta, or --secret-prior and --secret-posterior.",
            )
        return SecretBudget(self.secret_prior, self.secret_posterior)

    @property
    def unit(self) -> Unit:
        """Return the privacy unit."""
        if self._protects_secrets:
            if self.owner:
                raise ConfigError(
                    "A run protects owners or secrets, not both.",
                    "Leave out --owner, or give --epsilon and --delta instead of the prior and the posterior.",
                )
            if self.max_records_per_secret is None:
                raise ConfigError(
                    "max_records_per_secret is missing.",
                    "Declare with --max-records-per-secret M how many records may contain one secret; it is checked, "
                    "and must not be read from the data.",
                )
            told = recognised_by(self.secrets, self.secrets_file, self.secret_detectors)
            return Unit("secret", self.max_records_per_secret, recognised_by=told)
        if self.secrets or self.secrets_file or self.secret_detectors or self.max_records_per_secret:
            raise ConfigError(
                "Options that describe secrets are given, but no budget for secrets.",
                "Give --secret-prior P and --secret-posterior R instead of --epsilon and --delta, or leave out "
                "--secrets, --secrets-file, --secret-detectors and --max-records-per-secret.",
            )
        return Unit("owner", self.max_records_per_owner, self.owner) if self.owner else Unit("record")

    @property
    def _protects_secrets(self) -> bool:
        return self.secret_prior is not None or self.secret_posterior is not None


class LedgerParameters(Parameters):
    """The ledger."""

    dataset: Operational[str | None] = None
    """The dataset's name in the ledger. Default: the data file's stem."""
    ledger: Operational[str | None] = None
    """Ledger file or postgresql:// URL. Default: $UNDERSTUDY_LEDGER, else the user's state folder."""
    ledger_id: Operational[str | None] = None
    """Id that the ledger must have (``understudy ledger show``), so that no other ledger is used by mistake."""
    insecure_no_noise: bool = False
    """Add no noise. NOT PRIVATE."""
    insecure_noise_seed: Ablation[int | None] = Field(None, ge=0)
    """Sample repeatable noise. NOT PRIVATE."""

    @property
    def noise_source(self) -> NoiseSource:
        """Return the source of the noise: the operating system's entropy, unless the user asked for no or repeatable
        noise."""
        if self.insecure_no_noise:
            return InsecureNoNoise()
        if self.insecure_noise_seed is not None:
            return InsecureSeededNoise(self.insecure_noise_seed)
        return SystemNoise()

    def require_ledger(self) -> None:
        """Raise LedgerError if a charge would find no ledger where one is named; opens and creates nothing."""
        if self.noise_source.origin == SYSTEM and (self.ledger or os.environ.get("UNDERSTUDY_LEDGER")):
            from understudy.ledger.ledger import require_named

            require_named(self.ledger)

    @property
    def ledger_warnings(self) -> tuple[str, ...]:
        """Return the problem of :meth:`require_ledger` for verbs that charge nothing."""
        try:
            self.require_ledger()
        except LedgerError as error:
            return (f"{error.problem} A run would be refused. {error.cure}",)
        return ()


class SizeParameters(Parameters):
    """The public size of the corpus."""

    expected_records: Operational[int | None] = Field(None, ge=1, le=10**12)
    """Your estimate of the number of records (of owners, if owners are protected): a public round number, never read
    from the data. It decides sampling and other defaults: with more than 50,000 records a guide embeds a sample."""


class PlanParameters(Parameters):
    """Options of the forecast."""

    price_input: Operational[float | None] = Field(None, ge=0)
    """Price per million input tokens."""
    price_output: Operational[float | None] = Field(None, ge=0)
    """Price per million output tokens."""


class EmbedderParameters(Parameters):
    """The public embedder."""

    embedder: str = "builtin"
    """``builtin`` or ``hf:ORG/NAME``."""
    trust_endpoint: bool = False
    """Allow the operator of an embedder's endpoint, which is not local, to read the private texts."""


class PrivateModelParameters(Parameters):
    """The model that reads private text; it must be local."""

    private_model: str | None = None
    """Model that reads private text on this machine, or is the base of a fine-tuned Release: ``builtin`` (the default),
    ``hf:ORG/NAME`` or ``hf:./FOLDER``."""


class ModelParameters(Parameters):
    """The language model that writes the texts; it sees released values only."""

    llm: Free[str] = "builtin"
    """``builtin``, ``none`` (write the phrases themselves), ``hf:ORG/NAME``, or an endpoint's model: ``openai:NAME``,
    ``ollama:NAME``, ``vllm:NAME``, ``llamacpp:NAME``, ``lmstudio:NAME``, ``azure:NAME``, ``bedrock:NAME``,
    ``gemini:NAME`` (docs/endpoints.md)."""
    base_url: Operational[str | None] = None
    """Address of an OpenAI-compatible endpoint. Default: the product's own."""
    api_key_env: Operational[str | None] = None
    """Environment variable with the endpoint's key. Default: the product's own, for the product's own hosts."""
    llm_extra_body: Free[str | dict[str, Any] | None] = None
    """More fields for every request to the endpoint, as a JSON object: ``{"top_k": 40}``."""
    llm_batch: Operational[bool] = False
    """Send requests through batches (OpenAI's): half the price, answers within a day."""
    spending_cap: Operational[float | None] = Field(None, gt=0)
    """Stop before this much money is spent (needs the prices)."""
    accept_all: Operational[bool] = False
    """Keep texts that fail the checks, and a table in which more than a third of the texts fail."""

    @field_validator("llm_extra_body")
    @classmethod
    def _one_object(cls, value: str | dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the parsed object, so that flags, YAML and Python agree."""
        if value is None:
            return None
        try:
            fields = json.loads(value) if isinstance(value, str) else json.loads(json.dumps(value, allow_nan=False))
        except (ValueError, TypeError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise ValueError('expected a JSON object such as {"top_k": 40}')
        require_extra_body(fields)
        return fields

    @property
    def extra_body(self) -> dict[str, Any]:
        """Return :attr:`llm_extra_body` as a mapping; empty if it is not set."""
        return self.llm_extra_body if isinstance(self.llm_extra_body, dict) else {}


class EngineParameters(Parameters):
    """Where private records are read and embedded."""

    engine: Operational[Literal["in-process", "processes", "ray"]] = "in-process"
    """Where to process the private table: in this process, in several processes of this machine, or on a Ray cluster
    (the extra ``ray``): that of UNDERSTUDY_RAY_ADDRESS, else one on this machine."""
    workers: Operational[int | None] = Field(None, ge=1, le=100_000)
    """Number of cores that the engine uses. Default: all."""
    scratch: Operational[str | None] = None
    """Private folder for intermediate files, such as vectors; all machines of a cluster must share it. Default: in the
    output's private folder."""


class OutputParameters(Parameters):
    """The output."""

    output: Operational[str | None] = None
    """Folder for the results. Default for ``run`` and ``release``: NAME-synthetic, after the table; for
    ``generate``: DATASET-texts."""
    records_per_label: Free[int | None] = Field(None, ge=1, le=MOST_RECORDS)
    """Synthetic records per label. Default: 100 in all, shared among the labels, with at least 10 each."""
    records: Free[int | None] = Field(None, ge=1, le=MOST_RECORDS)
    """Synthetic records in total, in equal shares for all labels; with typed columns, in the shares of the released
    distribution."""
    seed: int = Field(0, ge=0)
    """Seed of public randomness and of the language model's sampling; never of the noise."""
    provenance: Operational[bool] = False
    """Add the provenance of each text (such as its phrases and topic) as columns to the synthetic table; it is always
    written to release/provenance.parquet."""
    fresh: Operational[bool] = False
    """Start over in a used output folder; charges the budget a second time."""


class SigningParameters(Parameters):
    """The signature."""

    sign: Operational[str | None] = None
    """Private key that signs the files in ``release/`` (docs/signing.md); ``understudy keys create`` makes one."""
    responsible: Operational[str] = Field("", max_length=1000)
    """Name in the signature of the person who answers for the results."""

    @model_validator(mode="after")
    def _signed(self) -> SigningParameters:
        if self.responsible and self.sign is None:
            raise ValueError("responsible is the name in a signature; give --sign KEY too")
        return self


def budget_fields(budget: Budget | SecretBudget) -> dict[str, str]:
    """Return a budget as settings: ``epsilon`` and ``delta``, or ``secret_prior`` and ``secret_posterior``."""
    if isinstance(budget, SecretBudget):
        return {"secret_prior": str(budget.prior), "secret_posterior": str(budget.posterior)}
    return {name: str(value) for name, value in vars(budget).items()}  # delta where there is one


_NAMED = {LabellingParameters, TablesParameters, RowsParameters, GuideParameters, ChoosingParameters}
_OF_OTHER_ADDITIONS: Any = tuple(
    group
    for each in ADDITIONS
    for group in (each.parameters, each.writing)
    if group is not None and group not in _NAMED
)


class RunConfig(
    DataParameters,
    ProtectionParameters,
    LedgerParameters,
    SizeParameters,
    PlanParameters,
    EmbedderParameters,
    PrivateModelParameters,
    WritingParameters,
    ModelParameters,
    LabellingParameters,
    TablesParameters,
    RowsParameters,
    GuideParameters,
    ChoosingParameters,
    *_OF_OTHER_ADDITIONS,  # type: ignore[misc]
    EngineParameters,
    OutputParameters,
    SigningParameters,
):
    """All settings of a run except the method's parameters."""

    method: str = DEFAULT_METHOD
    method_parameters: dict[str, Any] = Field(default_factory=dict)

    @property
    def chosen_method(self) -> Method:
        """Return the method with its parameters."""
        return make_method(self.method, self.method_parameters)

    def with_parameters(self, changes: Mapping[str, Any]) -> RunConfig:
        """Return the configuration with other parameters of the method."""
        return self.model_copy(update={"method_parameters": {**self.method_parameters, **changes}})

    @property
    def label_set(self) -> LabelSet:
        """Return the declared labels. If the run will find topics, return one placeholder per topic, longer than a
        name."""
        if not isinstance(self.topics, int):
            return super().label_set
        name = "the three public words by which this run will name a topic that it finds in the private texts"
        return LabelSet(tuple(f"{name}: topic {number + 1}" for number in range(self.topics)))

    @property
    def changeable(self) -> frozenset[str]:
        """Return the names of settings that may change after the charge, because no stored value depends on them."""
        needs, fields = method_class(self.method).needs, type(self).model_fields
        found = {name for name, field in fields.items() if is_free(field)} | ModelParameters.model_fields.keys()
        writing = WritingParameters.model_fields.keys()
        sampling = {"samples", "llm_temperature", "max_tokens"}
        fixed = sampling if needs.holds_texts else set[str]()
        if needs.private_model or needs.candidates:  # a value depends on what their model reads
            fixed = fixed | (writing - sampling)
        return frozenset((found | writing) - fixed)

    @property
    def lasting(self) -> dict[str, Any]:
        """Return the settings that a resumed run must share with the first, however they were given."""
        method = self.chosen_method
        unused = {name for name, field in type(self).model_fields.items() if _OPERATIONAL in field.metadata}
        unused.add("method_parameters")
        if method.needs.generation_llm == "never":
            unused |= ModelParameters.model_fields.keys()
        fields = self.model_dump(mode="json", exclude=unused)
        if self.epsilon is not None or self._protects_secrets:
            fields |= budget_fields(self.budget)
        if self.labels is not None:
            fields["labels"] = list(self.label_set.names)
        if self.columns is not None:
            fields["columns"] = [column.to_json() for column in self.all_columns]
        chosen = {name: value for name, value in method.dump().items() if name not in method.stopping_parameters}
        assert isinstance(method, Parameters)
        return {**fields, **chosen, "content of files": {**self.file_hashes, **method.file_hashes}}


Groups = tuple[type[Parameters], ...]
RUN_GROUPS = cast("Groups", RunConfig.__bases__)
WRITING_GROUPS: Groups = (WritingParameters, ModelParameters, PlanParameters)


def release_groups(method: type[Any]) -> Groups:
    """Return the groups of ``release``, with the prompts and models that the method needs; its parameters come last."""
    groups: Groups = (
        *(DataParameters, ProtectionParameters, LedgerParameters, SizeParameters),
        EmbedderParameters,
        *(each.parameters for each in ADDITIONS),
        *(EngineParameters, OutputParameters, SigningParameters),
    )
    if method.needs.private_model:
        groups += (PrivateModelParameters, WritingParameters)
    return (*groups, *(WRITING_GROUPS if method.needs.candidates else ()), method.parameters)


def run_config(values: Mapping[str, Any]) -> RunConfig:
    """Sort a flat mapping into a run's configuration and the method's parameters, and check both."""
    method = configured_method(values)
    own = set(method_class(method).parameters.model_fields)
    parameters = {name: value for name, value in values.items() if name in own}
    rest = {name: value for name, value in values.items() if name not in own}
    if str(values.get("delta")) in ("0", "0.0"):
        parameters = {**method_class(method).pure, **parameters}
    make_method(method, parameters)
    if "method_parameters" in rest:
        raise ConfigError(
            "There is no parameter 'method_parameters'.", "Give the method's parameters together with the others."
        )
    known = {*RunConfig.model_fields, *own} - {"method_parameters"}
    if unknown := sorted(map(str, rest.keys() - known)):
        raise ConfigError(f"There is no parameter {unknown[0]!r:.60}.", did_you_mean(unknown[0], sorted(known), LISTED))
    return RunConfig(**rest, method_parameters=parameters)


def run_names(values: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of all parameters of a run with the method that ``values`` name."""
    return frozenset({*RunConfig.model_fields, *method_class(configured_method(values)).parameters.model_fields})


def configured_method(values: Mapping[str, Any]) -> str:
    """Return the name of the method in a configuration. Raises ConfigError if it is not text: YAML may have read it as
    something too long to show."""
    method = values.get("method", DEFAULT_METHOD)
    if not isinstance(method, str):
        raise ConfigError(
            "The configuration's `method` is not text.",
            "Write `method: NAME`; `understudy run --help` lists the names.",
        )
    return method


def read_config(path: str | Path) -> dict[str, Any]:
    """Read a YAML configuration file as a flat mapping."""
    from understudy.base.yaml_text import load_yaml

    try:
        values = load_yaml(read_whole(Path(path), most=MOST_SETTINGS_BYTES).decode("utf-8"))
    except (UnreadableText, UnicodeDecodeError) as error:
        why = error if isinstance(error, UnreadableText) else type(error).__name__
        raise ConfigError(
            f"Cannot read the configuration {Path(path).name} ({why}).",
            "Give a YAML file in UTF-8 that names each parameter once.",
        ) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"The configuration {Path(path).name} is not a mapping.", "Write one `name: value` per line.")
    return {str(name).replace("-", "_"): value for name, value in values.items()}


def json_schema(method: str = DEFAULT_METHOD) -> dict[str, Any]:
    """Return the JSON Schema of a run's YAML configuration with ``method``."""
    bases: Any = (*RUN_GROUPS, method_class(method).parameters)
    field: Any = (str, Field(DEFAULT_METHOD, description="The method."))
    model: Any = create_model("UnderstudyConfiguration", __base__=bases, method=field)
    made: dict[str, Any] = model.model_json_schema()
    return made
