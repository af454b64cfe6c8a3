"""The typed keywords of the verbs. Made by `python docs/described.py` from the parameters' models."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

from understudy.corpus import Corpus, TableSource
from understudy.privacy.exact import Number
from understudy.run.generating import Result

class WritingOptions(TypedDict, total=False):
    document_type: str
    prompt: str | PathLike[str] | None
    samples: int | None
    llm_temperature: float | None
    max_tokens: int
    json_schema: str | PathLike[str] | None
    llm: str
    base_url: str | PathLike[str] | None
    api_key_env: str | PathLike[str] | None
    llm_extra_body: str | Mapping[str, Any] | None
    llm_batch: bool
    spending_cap: float | None
    accept_all: bool
    price_input: float | None
    price_output: float | None
    output: str | PathLike[str] | None
    records_per_label: int | None
    records: int | None
    seed: int
    provenance: bool
    fresh: bool

class PlanOptions(WritingOptions, total=False):
    sign: str | PathLike[str] | None
    responsible: str
    engine: Literal["in-process", "processes", "ray"]
    workers: int | None
    scratch: str | PathLike[str] | None
    guide_candidates: int | None
    guide: bool | None
    where: str | Mapping[str, Any] | None
    like_private: bool
    column_pairs: str
    topics: int | Literal["auto"] | None
    private_model: str | PathLike[str] | None
    embedder: str
    trust_endpoint: bool
    expected_records: int | None
    dataset: str | PathLike[str] | None
    ledger: str | PathLike[str] | None
    ledger_id: str | PathLike[str] | None
    insecure_no_noise: bool
    insecure_noise_seed: int | None
    owner: str | PathLike[str] | None
    max_records_per_owner: int
    secrets: str | Sequence[str]
    secrets_file: str | PathLike[str] | None
    secret_detectors: str | Sequence[str]
    max_records_per_secret: int | None
    text: str | Sequence[str] | None
    roles: str | Sequence[str]
    acts: str | Sequence[str]
    tools: str | Sequence[str]
    record_columns: str | Sequence[str]
    label: str | PathLike[str] | None
    labels: str | Sequence[str | int | float | bool] | None
    labels_from_data: bool
    columns: str | Mapping[str, Any] | None
    formats: str | Mapping[str, Any] | None
    language: str | PathLike[str] | None

class RunOptions(PlanOptions, total=False):
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None
    delimiter: str | PathLike[str] | None
    quotes: Literal["multiline", "line", "none"] | None
    encoding: str
    max_bad_rows: float

class AuditOptions(RunOptions, total=False):
    canaries: int
    prefix_words: int
    suffix_terms: int
    attacks: str | Sequence[str]
    confidence: float

class GenerateOptions(WritingOptions, total=False):
    embedder: str
    trust_endpoint: bool
    guide_candidates: int | None
    where: str | Mapping[str, Any] | None
    like_private: bool
    sign: str | PathLike[str] | None
    responsible: str
    harvest: Literal["population", "variations"]
    unfinished: Literal["drop", "keep"]
    allow_words: bool
    length: int
    contrast: float
    temperature: float
    shortest: int
    rounds: int
    population: int
    variations: int
    selection: Literal["rank", "proportional"]
    threshold: float
    blank_probability: float
    min_words: int
    max_words: int
    keywords: str | PathLike[str] | None
    keywords_are_public: bool
    distance: Literal["centred", "cosine", "l2"]

class BaselineOptions(WritingOptions, total=False):
    labels: str | Sequence[str | int | float | bool] | None
    min_words: int
    max_words: int
    keywords: str | PathLike[str] | None
    keywords_are_public: bool

class EvaluateOptions(TypedDict, total=False):
    output: str | PathLike[str] | None
    fresh: bool
    engine: Literal["in-process", "processes", "ray"]
    workers: int | None
    scratch: str | PathLike[str] | None
    dataset: str | PathLike[str] | None
    ledger: str | PathLike[str] | None
    ledger_id: str | PathLike[str] | None
    insecure_no_noise: bool
    insecure_noise_seed: int | None
    charge_metrics: Number | None
    charged_classifiers: str | Sequence[str]
    holdout: Corpus | TableSource | None
    beside: str | Sequence[str] | Mapping[str, Corpus | Result | TableSource]
    metrics: str | Sequence[str]
    classifiers: str | Sequence[str]
    column_classifiers: bool
    recipient: Corpus | TableSource | None
    language_model: bool
    in_context: str | Sequence[str]
    local_model: str
    detectors: str | Sequence[str]
    public_texts: str | PathLike[str] | None
    json_schema: str | PathLike[str] | None
    max_texts: int
    seeds: int
    embedder: str
    trust_endpoint: bool
    seed: int
    owner: str | PathLike[str] | None
    max_records_per_owner: int
    text: str | Sequence[str] | None
    roles: str | Sequence[str]
    acts: str | Sequence[str]
    tools: str | Sequence[str]
    record_columns: str | Sequence[str]
    label: str | PathLike[str] | None
    labels: str | Sequence[str | int | float | bool] | None
    labels_from_data: bool
    columns: str | Mapping[str, Any] | None
    formats: str | Mapping[str, Any] | None
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None
    delimiter: str | PathLike[str] | None
    quotes: Literal["multiline", "line", "none"] | None
    encoding: str
    max_bad_rows: float
