"""The prompting loop: what is asked, which answer is kept, what is asked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from clinic import FakeChat, prompt_of

from understudy.models.types import ChatRequest, Completion
from understudy.text.prompts.template import Example, PromptSettings, WritingParameters, load_template
from understudy.text.prompts.writer import ANSWERS, TEMPERATURE
from understudy.text.records import Row, Seed, SyntheticRecord
from understudy.text.vocabulary.words import kept_phrases
from understudy.text.writing import NoText, Writer, rank, tidy

SEEDS = [Seed(("fever", "rash"), 0), Seed(("chest pain", "stent"), 1)]


def write(
    chat: FakeChat | None, seeds: Sequence[Seed] = SEEDS, more: dict[str, Any] | None = None, **parameters: Any
) -> list[SyntheticRecord]:
    settings = {name: parameters.pop(name) for name in PromptSettings.model_fields if name in parameters}
    others = dict(more or {})
    changed = {"examples": others.pop("examples")} if "examples" in others else {}
    template = load_template("document").model_copy(update={"settings": PromptSettings(**settings), **changed})
    return list(Writer(chat, template, WritingParameters(**parameters), **others).write(seeds))


def in_turn(*texts: str) -> Callable[[ChatRequest], Completion]:
    """One text per call; the last one for all others."""
    left = list(texts)
    return lambda request: Completion(left.pop(0) if len(left) > 1 else left[0], "stop")


def test_without_a_model_a_text_is_its_phrases() -> None:
    records = write(None)
    assert [(record.text, record.label) for record in records] == [("fever, rash", 0), ("chest pain, stent", 1)]
    assert records[1].provenance == {"phrases": ["chest pain", "stent"]}


def test_a_prompt_holds_the_phrases_the_examples_and_nothing_else() -> None:
    chat = FakeChat()
    write(chat, more={"labels": ["skin", "heart"]})
    first, second = chat.asked
    shown = {message.content for message in first.messages if message.role == "assistant"}
    template = load_template("document")
    examples = [example for example in template.examples if example.text in shown]
    assert first.messages == template.messages(["fever", "rash"], examples=examples)
    assert first.messages[-1].content == prompt_of(["fever", "rash"])
    assert "heart" not in str(second.messages)


def test_the_label_is_named_only_when_asked() -> None:
    chat = FakeChat()
    write(chat, more={"labels": ["skin", "heart"]}, label_in_prompt=True)
    assert "skin" in chat.asked[0].messages[-1].content
    assert "heart" in chat.asked[1].messages[-1].content
    write(chat := FakeChat(), label_in_prompt=True)  # a Release without labels
    assert chat.asked[0].messages[-1].content == prompt_of(["fever", "rash"])


def test_parameters_reach_the_request_and_shorten_what_is_asked_for() -> None:
    chat, mole = FakeChat(), Seed(("fever", "rash", "mole"), 0)
    (record,) = write(chat, [mole], llm_temperature=0.3, top_p=0.5, max_tokens=17, prompt_terms=2)
    (request,) = chat.asked
    assert (request.temperature, request.top_p, request.max_tokens) == (0.3, 0.5, 17)
    assert request.stop == load_template("document").stop
    assert request.messages[-1].content == prompt_of(["fever", "rash"])
    assert record.provenance["phrases"] == ["fever", "rash"]


def test_examples_take_turns_and_those_of_the_user_replace_the_templates() -> None:
    mine = tuple(Example(phrases=("a",), text=text) for text in ("One.", "Two.", "Three."))
    chat = FakeChat()
    write(chat, [Seed((str(n),), 0) for n in range(3)], more={"examples": mine}, examples_per_prompt=2)
    shown = [[m.content for m in request.messages if m.role == "assistant"] for request in chat.asked]
    assert shown == [["One.", "Two."], ["Three.", "One."], ["Two.", "Three."]]
    write(chat := FakeChat(), examples_per_prompt=0)
    assert [message.role for message in chat.asked[0].messages] == ["system", "user"]


def test_the_sample_with_most_phrases_is_kept() -> None:
    chat = FakeChat(in_turn("No word.", "A Fever.", "A fever and a rash.", "rash"))
    (record,) = write(chat, SEEDS[:1], samples=4)
    assert record.text == "A fever and a rash."
    assert record.provenance["kept"] == ["fever", "rash"]
    assert [request.sample for request in chat.asked] == [0, 1, 2, 3]
    assert len({request.key("m") for request in chat.asked}) == 4


def test_the_ranking_of_answers() -> None:
    phrases = ["fever", "chest pain"]
    worst_to_best = [
        Completion("", "failed"),
        Completion("nothing", "length"),
        Completion("nothing", "stop"),
        Completion("A fever.", "length"),
        Completion("A FEVER.", "stop"),
        Completion("Chest-pain with a fever", "length"),
        Completion("A fever with chest pain.", "stop"),
    ]
    ranks = [rank(answer, phrases) for answer in worst_to_best]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)


def test_a_text_goes_before_a_list_of_its_words_and_before_one_that_goes_in_circles() -> None:
    phrases = ["fever", "rash", "mole"]
    told = rank(Completion("A rash with fever came from the mole.", "stop"), phrases)
    recited = rank(Completion("Fever, rash, mole.", "stop"), phrases)
    circling = rank(Completion("A rash, a fever, a mole, a rash, a fever, a mole, a rash.", "stop"), phrases)
    assert told > circling > recited > rank(Completion("Nothing.", "length"), phrases)


def test_phrases_count_as_kept_only_as_whole_words_in_a_row() -> None:
    assert kept_phrases("The paint; CHEST-PAIN, feverish.", ["ain", "chest pain", "fever"]) == ("chest pain",)
    assert kept_phrases("Pain chest", ["chest pain"]) == ()


def test_a_text_is_asked_for_again_with_the_missing_phrases() -> None:
    chat = FakeChat(in_turn("A fever.", "Still a fever.", "A fever with a rash.", "never asked"))
    (record,) = write(chat, SEEDS[:1], repair=4)
    assert record.text == "A fever with a rash."
    assert len(chat.asked) == 3
    for request, text in zip(chat.asked[1:], ["A fever.", "A fever."], strict=True):  # the better one is mended
        assert text in request.messages[-1].content
        assert "words: rash" in request.messages[-1].content
    assert len(set(chat.keys)) == 3
    (record,) = write(FakeChat(in_turn("A fever.", "Oh.")), SEEDS[:1], repair=1)
    assert record.text == "A fever.", "a repair that makes it worse is dropped"


def test_identical_prompts_and_other_seeds_are_different_samples() -> None:
    number = iter(range(99))
    chats = [FakeChat(lambda request: Completion(f"Text {next(number)}", "stop")) for _ in range(2)]
    for seed, chat in enumerate(chats):
        records = write(chat, [SEEDS[0]] * 3, examples_per_prompt=0, samples=2, more={"seed": seed})
        assert len({record.text for record in records}) == 3
    assert [request.sample for request in chats[0].asked] == [0, 1, 2, 3, 4, 5]
    assert not set(chats[0].keys) & set(chats[1].keys)


@pytest.mark.parametrize("blank", [Completion("", "empty"), Completion(" \n", "stop")])
def test_a_blank_answer_is_asked_for_once_more(blank: Completion) -> None:
    answers = iter([blank, Completion("A rash.", "stop")])
    chat = FakeChat(lambda request: next(answers))
    (record,) = write(chat, SEEDS[:1])
    assert record.text == "A rash."
    assert [request.sample for request in chat.asked] == [0, 1]


def test_what_stays_blank_or_fails_is_a_record_without_a_text() -> None:
    chat = FakeChat(lambda request: Completion("", "empty"))
    assert [record.text for record in write(chat, repair=2)] == ["", ""]
    assert len(chat.asked) == 4
    failed = Completion("", "failed", error="busy")
    chat = FakeChat(lambda request: failed if len(chat.asked) == 1 else Completion("A fever.", "stop"))
    first, second = write(chat, SEEDS[:2])
    assert (first.text, first.provenance["finish"]) == ("", "failed")
    assert second.text
    assert len(chat.asked) == 2  # the model has tried often enough; the next run asks again
    assert tidy(failed) == tidy(Completion(" \n ", "stop")) == ""


def test_where_all_fail_the_most_frequent_reason_is_named() -> None:
    answers = iter(["gone", "busy", "busy"])
    chat = FakeChat(lambda request: Completion("", "failed", error=next(answers)))
    with pytest.raises(NoText, match="wrote no text at all: busy"):
        write(chat, [SEEDS[0]] * 3)


def test_progress_counts_all_answers_over_all_batches() -> None:
    told: list[tuple[int, int]] = []
    chat = FakeChat(in_turn("A fever.", "A fever and a rash."))
    records = write(
        chat, [SEEDS[0]] * 5, more={"progress": lambda *numbers: told.append(numbers), "seeds_at_once": 2}, repair=1
    )
    assert [done for done, _ in told] == [0, 1, 2, 3, 4, 5, 6], "that there is something to wait for is told at once"
    assert told[-1] == (6, 6)
    assert len(records) == 5


def test_records_come_in_the_order_of_their_seeds() -> None:
    seeds = [Seed((f"term{number}",), number % 2) for number in range(10)]
    records = write(FakeChat(), seeds, more={"seeds_at_once": 3})
    assert [(record.provenance["phrases"][0], record.label) for record in records] == [
        (seed.phrases[0], seed.label) for seed in seeds
    ]
    assert all(record.provenance["model"] == "fake:chat" for record in records)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("  Good soup. Cold bread!\n", "Good soup. Cold bread!"),
        ("No end at all", "No end at all"),
        ("I liked the soup. It was hot. I liked the soup! It was hot.", "I liked the soup. It was hot."),
        ("Very nice. Very nice. Go there.", "Very nice. Very nice. Go there."),  # short ones may come twice
        ("一杯很好的茶。一杯很好的茶。", "一杯很好的茶。一杯很好的茶。"),
        ("a\ud800b", "a\ufffdb"),
    ],
)
def test_a_text_ends_where_it_begins_to_repeat_itself(text: str, left: str) -> None:
    assert tidy(Completion(text, "stop")) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Good soup. Cold bread and", "Good soup."),
        ("Good soup. Cold bread.", "Good soup. Cold bread."),
        ('He said "fine." Then we', 'He said "fine."'),
        ("No end at all", "No end at all"),
    ],
)
def test_an_answer_that_was_cut_ends_with_its_last_whole_sentence(text: str, left: str) -> None:
    assert tidy(Completion(text, "length")) == left
    assert tidy(Completion(text, "stop")) == text


def test_the_built_in_writer_is_asked_in_two_lines_and_steered_to_the_phrases() -> None:
    chat = FakeChat()
    records = write(chat, more={"labels": ["skin", "heart"], "trained": True})
    first, second = chat.asked[0], chat.asked[ANSWERS]
    assert [message.content for message in first.messages] == ["document about skin\nWords: fever, rash"]
    assert (first.phrases, second.phrases) == (("fever", "rash"), ("chest pain", "stent"))
    assert (first.temperature, len(chat.asked)) == (TEMPERATURE, ANSWERS * len(SEEDS))
    assert records[0].provenance["prompt"] == "writer"
    write(chat := FakeChat(), more={"labels": ["1", "2"], "trained": True})
    assert chat.asked[ANSWERS].messages[0].content == "document\nWords: chest pain, stent"
    row = Row(("Rome",), "city: Rome")
    write(chat := FakeChat(), [Seed(("fever",), 0, row)], more={"trained": True})
    assert chat.asked[0].messages[0].content == "document\ncity: Rome\nWords: fever"


def test_the_built_in_writer_is_asked_for_the_rarest_phrases_and_pairs_of_them() -> None:
    seed = Seed(("when", "mastercard", "get", "pin", "accepted"), 0)
    write(chat := FakeChat(), [seed], more={"trained": True})
    around = [("mastercard", "get", "pin", "accepted"), ("mastercard", "pin"), ("pin", "accepted")]
    assert [each.phrases for each in chat.asked] == around[:ANSWERS]
    write(chat := FakeChat(), [seed], more={"trained": True}, samples=3, llm_temperature=0.9)
    assert [each.phrases for each in chat.asked] == around
    assert chat.asked[0].temperature == 0.9
    assert [WritingParameters(samples=each).answers(trained=True) for each in (None, 6)] == [ANSWERS, 6]


def test_of_answers_that_keep_their_phrases_the_most_sensible_is_kept() -> None:
    odd = Completion("My rash. Times are fever bad.", "stop", sense=-2.2)
    plain = Completion("The rash came with a fever.", "stop", sense=0.85)
    bare = Completion("The doctor will see you now.", "stop", sense=1.4)  # without its phrases
    answers = [odd, plain, bare]
    (record,) = write(FakeChat(lambda _request: answers.pop(0)), SEEDS[:1], more={"trained": True}, samples=3)
    assert (record.text, record.provenance["sense"]) == (plain.text, 0.7)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("The bed was fine. Quiet.", 0.5),
        ("The bed was quiet and fine.", 1.0),
        ("Fine bed. Very quiet.", 1.0),
        ("Quiet!", 0.5),
    ],
)
def test_a_phrase_that_is_a_sentence_by_itself_does_not_count(text: str, score: float) -> None:
    assert rank(Completion(text, "stop"), ("bed", "quiet"))[1] == score


def test_other_models_are_not_told_what_steers_the_writer() -> None:
    write(chat := FakeChat())
    assert all(request.phrases == () for request in chat.asked)
