"""Prompts for texts that have parts: what asks for them, and public examples in their form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import cycle

from understudy.base.transcript import TOOL, Part, TextForm
from understudy.text.prompts.evolving import EvolutionExample
from understudy.text.prompts.template import Example, PromptTemplate

_TEXT = "\n\n{text}"
_SYSTEM = "system"
"""The role of a chat's instructions, which speaks to nobody in turn."""


def in_form(template: PromptTemplate, form: TextForm) -> PromptTemplate:
    """The template, with every pattern asking for texts of this form, and its examples in it; as it is for plain texts.

    Names are public, and a template is data: so all methods ask alike, and the hash of the prompts tells the form.
    """
    if not form:
        return template
    wish = _wish(template, form)
    evolution, prediction = template.evolution, template.prediction
    examples = _examples(template, form)
    shown = tuple(EvolutionExample(text=each.text, keyword=each.phrases[0]) for each in examples if each.phrases)
    forms = {
        name: own.model_copy(update={"before": _asking(own.before, wish), "block": "{text}", "cue": ""})
        for name, own in (("chat", prediction.chat), ("completion", prediction.completion))
    }
    return template.model_copy(
        update={
            "user": _asking(template.user, wish),
            "user_with_label": template.user_with_label and _asking(template.user_with_label, wish),
            "repair": _asking(template.repair, wish),
            "stop": (),
            "examples": examples,
            "evolution": evolution.model_copy(
                update={
                    **{
                        name: tuple(_asking(pattern, wish) for pattern in getattr(evolution, name))
                        for name in ("random", "fill", "rephrase")
                    },
                    "examples": shown,
                }
            ),
            "prediction": prediction.model_copy(update={**forms, "ask": _asking(prediction.ask, wish), "examples": ()}),
        }
    )


def _wish(template: PromptTemplate, form: TextForm) -> str:
    if form.fields:
        return template.as_fields.replace("{outline}", "\n".join(f"{name}: ..." for name in form.fields))
    *others, last = form.roles
    roles = f"{', '.join(others)} and {last}" if others else last
    outline = form.render(_dialogue(form, form.roles, ["..."] * len(form.roles), asked="...", answer="..."))
    wishes = [template.as_dialogue.replace("{roles}", roles).replace("{outline}", outline)]
    if form.acts:
        wishes.append(template.as_acts.replace("{acts}", ", ".join(form.acts)))
    if form.tools:
        wishes.append(template.as_calls.replace("{caller}", last).replace("{tools}", ", ".join(form.tools)))
    return "\n".join(wishes)


def _asking(pattern: str, wish: str) -> str:
    """The pattern with the wish at its end, or before the text that it shows."""
    asks, shows, rest = pattern.partition(_TEXT)
    return f"{asks} {wish}{shows}{rest}"


def _examples(template: PromptTemplate, form: TextForm) -> tuple[Example, ...]:
    """Those of the template that can be shown in this form."""
    made = []
    for each in template.rows if form.fields else template.dialogues:
        if len(each.parts) >= len(form.fields) and each.parts:
            if form.fields:
                parts = list(map(Part, form.fields, each.parts))
            else:
                speakers = [role for role in form.roles if role != _SYSTEM] or form.roles
                parts = _dialogue(form, speakers, each.parts, asked=", ".join(each.phrases), answer="found")
            made.append(Example(phrases=each.phrases, text=form.render(parts)))
    return tuple(made)


def _dialogue(form: TextForm, speakers: Sequence[str], said: Sequence[str], *, asked: str, answer: str) -> list[Part]:
    """What those who speak say in turn, with one act after another; before the last role first speaks, it calls a
    tool."""
    names, acts, caller = cycle(speakers), cycle(form.acts or ("",)), form.roles[-1]
    parts = [Part(next(names), content, next(acts)) for content in said]
    if form.tools:
        tool = form.tools[0]
        call = Part(caller, json.dumps({"query": asked}, ensure_ascii=False), tool=tool)
        place = next((place for place, part in enumerate(parts) if part.name == caller), len(parts))
        parts[place:place] = [call, Part(TOOL, answer, tool=tool)]
    return parts
