"""How long a local model will write is said once it is known, and again where it proves wrong."""

from __future__ import annotations

from understudy.run.generating import Duration


def test_the_time_is_said_when_it_is_long_and_again_only_if_it_proves_wrong() -> None:
    said: list[str] = []
    duration = Duration(said.append, answers_each=4)
    duration.begin(0, 60)
    for seconds in (0.1, 0.2, 0.21, 0.25, 0.31, 0.3, 0.9, 0.8):
        duration.paced(seconds, 240)
        duration.paced(10 * seconds, 4)  # repeated
    assert [line.rpartition(" about ")[2] for line in said] == ["50 s in all.", "4 min in all."]


def test_texts_with_stored_answers_take_no_time() -> None:
    said: list[str] = []
    duration = Duration(said.append)
    for done in (40, 45, 60):
        duration.begin(done, 60)
    duration.paced(3.0, 20)
    assert said == ["At the present speed of this machine, 20 texts take about 60 s in all."]
