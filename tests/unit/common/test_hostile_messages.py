"""Bytes that no honest peer sends, in both directions: each is accepted or refused, and nothing else ever happens."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.decoders import DECODERS, REFUSALS
from support.mutations import damaged, mutated, reshaped, variants

CORPUS = Path(__file__).parents[2] / "corpus"
LITTLE_MEMORY = 8 << 20

each_decoder = pytest.mark.parametrize("name", DECODERS)


def refused(name: str, data: bytes) -> bool:
    """Whether the bytes are refused; any other error than a refusal is raised."""
    try:
        DECODERS[name].read(data)
    except REFUSALS:
        return True
    return False


@each_decoder
def test_what_an_honest_peer_sends_is_accepted(name: str) -> None:
    for sample in DECODERS[name].samples:
        assert not refused(name, sample.SerializeToString())


@each_decoder
def test_P14_every_field_in_every_wrong_way(name: str) -> None:
    tracemalloc.start()
    try:
        cases = [case for sample in DECODERS[name].samples for case in variants(sample)]
        refusals = {what for what, data in cases if refused(name, data)}
        assert tracemalloc.get_traced_memory()[1] < LITTLE_MEMORY
    finally:
        tracemalloc.stop()
    assert refusals or name == "goodbye"  # of which every field is only shown


@each_decoder
def test_P14_messages_cut_doubled_and_with_unknown_fields(name: str) -> None:
    for sample in DECODERS[name].samples:
        for what, data in damaged(sample.SerializeToString()):
            outcome = refused(name, data)
            assert not (outcome and "unknown" in what), what  # a newer minor protocol adds fields


@each_decoder
@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_P14_any_bytes(name: str, data: bytes) -> None:
    refused(name, data)


@each_decoder
@settings(deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_P14_any_mutation(name: str, chance: random.Random) -> None:
    sample = chance.choice(DECODERS[name].samples)
    refused(name, mutated(sample, chance))
    assert not refused(name, reshaped(sample, chance))


@each_decoder
def test_P14_what_fuzzing_has_found_interesting(name: str) -> None:
    """The saved inputs of tests/fuzz/fuzz.py."""
    files = sorted((CORPUS / name).iterdir())
    assert files
    for file in files:
        refused(name, file.read_bytes())
