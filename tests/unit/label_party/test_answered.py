"""What was answered is remembered through a restart, and no other activation is answered after going back."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path

import pytest

from cutlayer.common.errors import OrderError
from cutlayer.common.handshake import Terms
from cutlayer.label_party.answered import AnsweredActivations
from cutlayer.label_party.session import Compute, LabelPartyLink


def digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def test_what_was_noted_is_found_by_a_later_process(tmp_path: Path) -> None:
    with closing(AnsweredActivations(tmp_path / "answered")) as first:
        first.note(3, {"lab": digest("z3")})
        first.sync()
    with closing(AnsweredActivations(tmp_path / "answered")) as later:
        assert later.at("lab", 3) == digest("z3")
        assert [later.at("lab", step) for step in (1, 2, 4)] == [None, None, None]
        assert later.at("bank", 3) is None


def test_P16_after_going_back_only_the_same_activation_is_answered(tmp_path: Path) -> None:
    terms = Terms("lab", digest("job"), 4, 12, digest("rows"))
    with closing(AnsweredActivations(tmp_path)) as answered:
        answered.note(1, {"lab": digest("z1")})
        link: LabelPartyLink[str] = LabelPartyLink(terms, 5, None, lambda step: answered.at("lab", step))
        with pytest.raises(OrderError, match="step 1 came again with another activation"):
            link.on_activation(1, digest("another"), digest("b1"), link.history, digest("b1"))
        assert link.extra_queries == 1
        assert link.on_activation(1, digest("z1"), digest("b1"), link.history, digest("b1")) == Compute(1)
