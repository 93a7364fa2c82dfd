"""Alignment: parties find the same rows in the same order, and no id leaves its party."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.common import alignment
from cutlayer.common.alignment import IdForm, OwnIds, common_rows, explain_no_match, id_digests, id_form
from cutlayer.common.errors import DataError, FrameError
from cutlayer.v1 import training_pb2

SECRET = b"between us"
ids = st.lists(st.text(alphabet="ab01é ", min_size=1, max_size=4), unique=True, max_size=30)


def test_a_digest_is_the_first_half_of_an_hmac() -> None:
    expected = hmac.new(SECRET, "köln-0".encode(), hashlib.sha256).digest()[:16]
    assert id_digests(["köln-0"], SECRET).tobytes() == expected


def test_ids_match_in_any_unicode_form() -> None:
    written = "köln"
    forms = [unicodedata.normalize(form, written) for form in ("NFC", "NFD")]
    assert forms[0] != forms[1]
    assert len(set(id_digests(forms, SECRET).tolist())) == 1


def test_another_secret_gives_other_digests() -> None:
    assert id_digests(["1"], SECRET).tobytes() != id_digests(["1"], b"other").tobytes()
    assert alignment.secret_check(SECRET) != alignment.secret_check(b"other")
    assert len(alignment.secret_check(SECRET)) == 16


@given(ids)
def test_own_ids_are_sorted_by_digest(texts: list[str]) -> None:
    own = OwnIds(texts, SECRET)
    in_order = [own.digests[i].tobytes() for i in range(len(texts))]
    assert in_order == sorted(in_order)
    assert in_order == [id_digests([texts[i]], SECRET).tobytes() for i in own.order]


@given(st.lists(ids, min_size=1, max_size=4))
def test_every_party_finds_the_common_ids_in_the_same_order(parties: list[list[str]]) -> None:
    owns = [OwnIds(texts, SECRET) for texts in parties]
    masks = common_rows([own.digests for own in owns])
    found = [[texts[i] for i in own.order[mask]] for texts, own, mask in zip(parties, owns, masks, strict=True)]
    assert all(rows == found[0] for rows in found)
    assert set(found[0]) == set.intersection(*map(set, parties))
    digests = {alignment.rows_digest(own.digests[mask]) for own, mask in zip(owns, masks, strict=True)}
    assert len(digests) == 1


def test_digests_that_end_in_zeros_are_told_apart() -> None:
    tail = [bytes(16), bytes(15) + b"\1", b"\1" + bytes(15), b"\1\0" + b"\2" + bytes(13)]
    digests = alignment.digests_from_wire(b"".join(tail))
    masks = common_rows([digests, digests[1:3]])
    assert masks[0].tolist() == [False, True, True, False]


def test_P12_the_rows_digest_notices_any_change() -> None:
    digests = OwnIds(["a", "b", "c"], SECRET).digests
    variants = [digests, digests[[1, 0, 2]], digests[:2], digests[[0, 1, 1]]]
    assert len({alignment.rows_digest(variant) for variant in variants}) == len(variants)


@given(st.permutations(range(7)))
def test_P12_any_other_order_of_the_same_rows_is_noticed(order: list[int]) -> None:
    digests = OwnIds([str(number) for number in range(7)], SECRET).digests
    same = alignment.rows_digest(digests[order]) == alignment.rows_digest(digests)
    assert same == (order == sorted(order))


def test_repeated_ids_are_refused_without_showing_them() -> None:
    with pytest.raises(DataError, match="2 of 5 rows have an id that another row has") as error:
        OwnIds(["zebra", "b", "zebra", "b", "c"], SECRET)
    assert "zebra" not in str(error.value)


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (["17", "-3", "007"], IdForm.INTEGER),
        (["17.0", "0.0"], IdForm.DECIMAL),
        (["17", "17.0"], IdForm.TEXT),
        (["u17"], IdForm.TEXT),
        (["17", ""], IdForm.TEXT),
        (["١٧"], IdForm.TEXT),
        ([], IdForm.TEXT),
    ],
)
def test_the_form_of_ids(texts: list[str], form: IdForm) -> None:
    assert id_form(texts) is form


def test_the_forms_are_numbered_as_on_the_wire() -> None:
    for form in IdForm:
        assert training_pb2.IdForm.Value(f"ID_FORM_{form.name}") == form


@given(ids)
def test_digests_survive_the_wire(texts: list[str]) -> None:
    digests = OwnIds(texts, SECRET).digests
    np.testing.assert_array_equal(alignment.digests_from_wire(alignment.digests_to_wire(digests)), digests)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (bytes(17), "a multiple of 16 bytes, got 17"),
        (bytes(32), "ascending order"),
        (b"\2" + bytes(15) + b"\1" + bytes(15), "ascending order"),
    ],
)
def test_wrong_digests_from_the_wire_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(FrameError, match=problem):
        alignment.digests_from_wire(data)


@given(st.lists(st.booleans(), max_size=40))
def test_masks_survive_the_wire(bits: list[bool]) -> None:
    packed = alignment.pack_mask(np.array(bits, dtype=bool))
    assert [bool(packed[i // 8] >> i % 8 & 1) for i in range(len(bits))] == bits
    assert alignment.unpack_mask(packed, len(bits)).tolist() == bits


@pytest.mark.parametrize("data", [b"", bytes(3)])
def test_a_mask_of_the_wrong_length_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError, match=f"mask of 9 rows: expected 2 bytes, got {len(data)}"):
        alignment.unpack_mask(data, 9)


def test_what_is_said_when_nothing_matches() -> None:
    text = explain_no_match(IdForm.TEXT, IdForm.TEXT, 60, [60], "label.csv")
    assert "label.csv: 0 of 60 rows match (the other side has 60)" in text
    assert "leading zeros" in text


def test_what_is_said_when_ids_are_written_differently() -> None:
    text = explain_no_match(IdForm.INTEGER, IdForm.DECIMAL, 120, [], "label.csv")
    assert "label.csv: 0 of 120 rows match." in text
    assert "this side as whole numbers like 17, the other side as decimal numbers like 17.0" in text
