"""Prompts for texts that have parts: what asks for them, and public examples in their form."""

from __future__ import annotations

from understudy.prompts.evolving import EvolutionExample
from understudy.prompts.template import Example, PromptTemplate
from understudy.transcript import TextForm

_TEXT = "\n\n{text}"


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
    outline = "\n".join(f"{name}: ..." for name in form.names)
    if form.fields:
        return template.as_fields.replace("{outline}", outline)
    *others, last = form.roles
    roles = f"{', '.join(others)} and {last}" if others else last
    return template.as_dialogue.replace("{roles}", roles).replace("{outline}", outline)


def _asking(pattern: str, wish: str) -> str:
    """The pattern with the wish at its end, or before the text that it shows."""
    asks, shows, rest = pattern.partition(_TEXT)
    return f"{asks} {wish}{shows}{rest}"


def _examples(template: PromptTemplate, form: TextForm) -> tuple[Example, ...]:
    """Those of the template that can be shown in this form."""
    made = []
    for each in template.rows if form.fields else template.dialogues:
        if len(each.parts) >= len(form.fields) and each.parts:
            names = form.fields or [form.roles[place % len(form.roles)] for place in range(len(each.parts))]
            text = form.render(list(zip(names, each.parts, strict=False)))
            made.append(Example(phrases=each.phrases, text=text))
    return tuple(made)
