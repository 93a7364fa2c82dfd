import itertools
import tracemalloc

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutlayer.common.errors import FrameError, TrainingError
from cutlayer.common.limits import CHUNK_BYTES
from cutlayer.common.tensors import MatrixReader, _require_little_endian, all_finite, matrices_digest, to_matrices
from cutlayer.v1 import matrix_pb2
from cutlayer.v1.matrix_pb2 import Matrix

ENCODINGS = ("float32", "float16", "bfloat16")
FLOAT32_MAX = torch.finfo(torch.float32).max
SMALLEST = 2.0**-149

untimed = settings(deadline=None)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    rows, width = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    flat = draw(st.lists(numbers, min_size=rows * width, max_size=rows * width))
    return torch.tensor(flat, dtype=torch.float32).view(rows, width)


def over_the_wire(matrices: list[Matrix]) -> list[Matrix]:
    return [Matrix.FromString(matrix.SerializeToString()) for matrix in matrices]


def read_back(matrices: list[Matrix], like_Bd: Tensor, encoding: str) -> MatrixReader:
    rows, width = like_Bd.shape
    reader = MatrixReader(rows, width, encoding)
    complete = [reader.add(matrix) for matrix in over_the_wire(matrices)]
    assert complete == [False] * (len(matrices) - 1) + [True]
    return reader


def round_trip(t_Bd: Tensor, encoding: str) -> Tensor:
    return read_back(to_matrices(t_Bd, encoding), t_Bd, encoding).tensor()


def changed(matrix: Matrix, **fields: object) -> Matrix:
    other = Matrix.FromString(matrix.SerializeToString())
    for name, value in fields.items():
        if value is None:
            other.ClearField(name)
        else:
            setattr(other, name, value)
    return other


# Round trips.


@untimed
@given(tensors())
@example(torch.tensor([[-0.0]]))
@example(torch.tensor([[FLOAT32_MAX, SMALLEST]]))
def test_float32_keeps_every_bit(t_Bd: Tensor) -> None:
    assert torch.equal(round_trip(t_Bd, "float32").view(torch.int32), t_Bd.view(torch.int32))


@untimed
@given(tensors())
@example(torch.zeros(2, 3))
@example(torch.tensor([[FLOAT32_MAX, -1.0]]))
@example(torch.tensor([[SMALLEST]]))
def test_float16_keeps_11_bits_of_numbers_near_the_largest_and_never_overflows(t_Bd: Tensor) -> None:
    error = (round_trip(t_Bd, "float16").double() - t_Bd.double()).abs()
    largest = t_Bd.double().abs().max()
    assert bool((error <= torch.maximum(2.0**-11 * t_Bd.double().abs(), 2.0**-38 * largest) + SMALLEST / 2).all())


@untimed
@given(tensors())
@example(torch.tensor([[FLOAT32_MAX, -FLOAT32_MAX]]))
def test_bfloat16_keeps_8_bits_and_never_overflows(t_Bd: Tensor) -> None:
    error = (round_trip(t_Bd, "bfloat16").double() - t_Bd.double()).abs()
    assert bool((error <= 2.0**-8 * t_Bd.double().abs() + 2.0**-134).all())


@untimed
@given(tensors(), st.sampled_from(ENCODINGS))
def test_what_was_decoded_once_travels_again_without_loss(t_Bd: Tensor, encoding: str) -> None:
    once = round_trip(t_Bd, encoding)
    assert torch.equal(round_trip(once, encoding), once)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (9, 1), (64, 16)])
def test_numbers_that_every_encoding_can_hold_arrive_unchanged(encoding: str, shape: tuple[int, int]) -> None:
    t_Bd = torch.arange(shape[0] * shape[1]).remainder(256).sub(128).float().view(shape)
    assert torch.equal(round_trip(t_Bd, encoding), t_Bd)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_views_gradients_and_other_dtypes_are_sent_as_their_values(encoding: str) -> None:
    t_Bd = torch.arange(6.0, dtype=torch.float64).view(2, 3).t().requires_grad_()
    assert torch.equal(round_trip(t_Bd, encoding), t_Bd.detach().float())


def test_float16_uses_its_range_for_the_small_gradients_of_a_mean_loss() -> None:
    g_Bd = torch.randn(128, 16, generator=torch.Generator().manual_seed(1)) * 1e-7
    assert (g_Bd.half().float() - g_Bd).abs().max() > 0.02 * g_Bd.abs().max()
    assert (round_trip(g_Bd, "float16") - g_Bd).abs().max() < 2.0**-11 * g_Bd.abs().max()


@pytest.mark.parametrize(
    ("largest", "scale"), [(0.0, 1.0), (2.0**14, 1.0), (2.0**15 - 1, 1.0), (2.0**15, 2.0), (-0.5, 2.0**-15)]
)
def test_float16_scale_is_a_power_of_two(largest: float, scale: float) -> None:
    assert to_matrices(torch.tensor([[largest, 0.0]]), "float16")[0].scale == scale


def test_bytes_are_little_endian_row_after_row() -> None:
    t_Bd = torch.tensor([[1.0, -2.0], [0.5, 4.0]])
    assert to_matrices(t_Bd, "float32")[0].data.hex() == "0000803f" + "000000c0" + "0000003f" + "00008040"
    assert to_matrices(t_Bd, "bfloat16")[0].data.hex() == "803f" + "00c0" + "003f" + "8040"
    half = to_matrices(t_Bd, "float16")[0]
    assert half.scale == 2.0**-12
    assert half.data.hex() == "006c" + "00f0" + "0068" + "0074"


def test_a_machine_with_another_byte_order_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="little-endian"):
        _require_little_endian("big")


# Chunks.


@pytest.mark.parametrize(
    ("rows", "encoding", "lengths"),
    [
        (1024, "float32", [CHUNK_BYTES]),
        (1025, "float32", [CHUNK_BYTES, 4096]),
        (1280, "float32", [CHUNK_BYTES, 1 << 20]),
        (2560, "bfloat16", [CHUNK_BYTES, 1 << 20]),
        (4096, "float16", [CHUNK_BYTES, CHUNK_BYTES]),
    ],
)
def test_a_large_matrix_travels_in_chunks(rows: int, encoding: str, lengths: list[int]) -> None:
    t_Bd = torch.arange(rows * 1024).remainder(251).float().view(rows, 1024)
    matrices = to_matrices(t_Bd, encoding)
    assert [len(matrix.data) for matrix in matrices] == lengths
    assert [matrix.offset for matrix in matrices] == [0, *itertools.accumulate(lengths)][:-1]
    reader = read_back(matrices, t_Bd, encoding)
    assert torch.equal(reader.tensor(), t_Bd)
    assert reader.payload_bytes == sum(lengths)
    assert reader.digest() == matrices_digest(matrices)


@pytest.fixture(scope="module")
def three_chunks() -> list[Matrix]:
    return to_matrices(torch.zeros(3, CHUNK_BYTES // 4), "float32")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([1], "offset: expected 0, got 4194304"),
        ([0, 0], "offset: expected 4194304, got 0"),
        ([0, 2], "offset: expected 4194304, got 8388608"),
        ([0, 1, 1], "offset: expected 8388608, got 4194304"),
        ([0, 1, 2, 2], "a chunk came after all 12582912 bytes"),
    ],
)
def test_P14_chunks_come_in_order_and_once(three_chunks: list[Matrix], order: list[int], message: str) -> None:
    reader = MatrixReader(3, CHUNK_BYTES // 4, "float32")
    for index in order[:-1]:
        reader.add(three_chunks[index])
    with pytest.raises(FrameError, match=message):
        reader.add(three_chunks[order[-1]])


def test_P14_chunks_do_not_overlap(three_chunks: list[Matrix]) -> None:
    reader = MatrixReader(3, CHUNK_BYTES // 4, "float32")
    reader.add(three_chunks[0])
    with pytest.raises(FrameError, match="offset: expected 4194304, got 4194300"):
        reader.add(changed(three_chunks[1], offset=CHUNK_BYTES - 4))


def test_P14_the_scale_is_the_same_in_all_chunks() -> None:
    first, second = to_matrices(torch.ones(2, CHUNK_BYTES // 2), "float16")
    reader = MatrixReader(2, CHUNK_BYTES // 2, "float16")
    reader.add(first)
    with pytest.raises(FrameError, match=r"scale: expected 6.103515625e-05, got 0.5"):
        reader.add(changed(second, scale=0.5))


# What is refused.


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": None}, "rows is missing"),
        ({"rows": 0}, "rows: expected 3, got 0"),
        ({"rows": 2**32 - 1}, "rows: expected 3, got 4294967295"),
        ({"width": None}, "width is missing"),
        ({"width": 0}, "width: expected 2, got 0"),
        ({"width": 2**32 - 1}, "width: expected 2, got 4294967295"),
        ({"rows": 2, "width": 3}, "rows: expected 3, got 2"),
        ({"encoding": None}, r"encoding: expected float32, got unknown \(0\)"),
        ({"encoding": 77}, r"encoding: expected float32, got unknown \(77\)"),
        ({"encoding": 2**31 - 1}, r"encoding: expected float32, got unknown \(2147483647\)"),
        ({"encoding": matrix_pb2.ENCODING_FLOAT16}, "encoding: expected float32, got float16"),
        ({"scale": None}, "scale is missing"),
        ({"scale": 0.0}, "scale: expected 1.0, got 0.0"),
        ({"scale": 2.0}, "scale: expected 1.0, got 2.0"),
        ({"scale": float("nan")}, "scale: expected 1.0, got nan"),
        ({"offset": None}, "offset is missing"),
        ({"offset": 4}, "offset: expected 0, got 4"),
        ({"offset": 2**64 - 1}, "offset: expected 0, got 18446744073709551615"),
        ({"data": None}, "length in bytes: expected 24, got 0"),
        ({"data": bytes(23)}, "length in bytes: expected 24, got 23"),
        ({"data": bytes(25)}, "length in bytes: expected 24, got 25"),
    ],
)
def test_P14_a_wrong_field_is_refused_and_named(fields: dict[str, object], message: str) -> None:
    reader = MatrixReader(3, 2, "float32")
    good = to_matrices(torch.ones(3, 2), "float32")[0]
    with pytest.raises(FrameError, match=f"^matrix: {message}$"):
        reader.add(changed(good, **fields))
    assert reader.payload_bytes == 0
    assert reader.add(good)


@pytest.mark.parametrize("scale", [0.0, -1.0, 3.0, 1.5, float("inf"), float("nan"), FLOAT32_MAX])
def test_P14_a_float16_scale_that_is_no_power_of_two_is_refused(scale: float) -> None:
    with pytest.raises(FrameError, match="scale: expected a power of two, got"):
        MatrixReader(1, 1, "float16").add(changed(to_matrices(torch.ones(1, 1), "float16")[0], scale=scale))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_P14_a_number_that_is_not_finite_is_refused_with_its_row(encoding: str, number: float) -> None:
    matrix = to_matrices(torch.zeros(5, 2), encoding)[0]
    dtype = getattr(torch, encoding)
    raw_Bd = torch.zeros(5, 2, dtype=dtype)
    raw_Bd[3, 1] = number
    reader = MatrixReader(5, 2, encoding)
    reader.add(changed(matrix, data=raw_Bd.view(torch.uint8).numpy().tobytes()))
    with pytest.raises(FrameError, match=r"row 3 of the batch \(from 0\) has a number that is not finite"):
        reader.tensor()


def test_P14_a_scale_that_takes_numbers_out_of_float32_is_refused_with_the_row() -> None:
    matrix = to_matrices(torch.tensor([[0.0], [1.0]]), "float16")[0]
    reader = MatrixReader(2, 1, "float16")
    reader.add(changed(matrix, scale=2.0**120))
    with pytest.raises(FrameError, match="row 1 of the batch"):
        reader.tensor()


def test_an_unfinished_matrix_gives_neither_tensor_nor_digest(three_chunks: list[Matrix]) -> None:
    reader = MatrixReader(3, CHUNK_BYTES // 4, "float32")
    reader.add(three_chunks[0])
    for ask in (reader.tensor, reader.digest):
        with pytest.raises(ValueError, match="4194304 of 12582912 bytes"):
            ask()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_never_sent_and_the_error_stays_at_home(encoding: str, number: float) -> None:
    t_Bd = torch.zeros(4, 2)
    t_Bd[2, 1] = number
    with pytest.raises(TrainingError) as caught:
        to_matrices(t_Bd, encoding)
    assert caught.value.wire_status is None
    assert "2" not in str(caught.value)


@untimed
@given(st.lists(st.floats(width=32), min_size=1, max_size=40), st.booleans())
def test_all_finite_tells_what_isfinite_tells(flat: list[float], as_matrix: bool) -> None:
    t = torch.tensor(flat, dtype=torch.float32)
    assert all_finite(t.view(1, -1) if as_matrix else t) == bool(t.isfinite().all())


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", range(0, 300, 7))
def test_all_finite_finds_one_number_among_many(place: int, number: float) -> None:
    t = torch.ones(300)
    assert all_finite(t)
    t[place] = number
    assert not all_finite(t)


values = {
    "rows": st.none() | st.sampled_from([0, 1, 3, 2**31, 2**32 - 1]),
    "width": st.none() | st.sampled_from([0, 1, 2, 2**31, 2**32 - 1]),
    "encoding": st.none() | st.sampled_from([1, 2, 3, 4, -1, 2**31 - 1]),
    "scale": st.none() | st.floats(width=32),
    "offset": st.none() | st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    "data": st.none() | st.binary(max_size=40),
}


@untimed
@given(st.fixed_dictionaries({}, optional=values), st.sampled_from(ENCODINGS))
def test_P14_any_fields_give_a_tensor_or_a_frame_error(fields: dict[str, object], encoding: str) -> None:
    reader = MatrixReader(3, 2, encoding)
    try:
        complete = reader.add(changed(to_matrices(torch.ones(3, 2), encoding)[0], **fields))
        t_Bd = reader.tensor()
    except FrameError:
        return
    assert complete
    assert t_Bd.shape == (3, 2)
    assert bool(t_Bd.isfinite().all())


def test_P14_declared_sizes_commit_no_memory() -> None:
    reader = MatrixReader(2**20, 2**16, "float32")
    claim = Matrix(rows=2**20, width=2**16, encoding=matrix_pb2.ENCODING_FLOAT32, scale=1, offset=0, data=bytes(100))
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match="expected 4194304, got 100"):
            reader.add(claim)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


# Digests.


@untimed
@given(tensors(), st.sampled_from(ENCODINGS))
def test_both_sides_have_the_same_digest(t_Bd: Tensor, encoding: str) -> None:
    matrices = to_matrices(t_Bd, encoding)
    assert read_back(matrices, t_Bd, encoding).digest() == matrices_digest(matrices)


def test_the_digest_tells_every_bit_and_the_scale() -> None:
    t_Bd = torch.tensor([[1.0, 2.0]])
    matrix = to_matrices(t_Bd, "float16")[0]
    digests = {matrices_digest([matrix]), matrices_digest([changed(matrix, scale=0.5)]), matrices_digest([])}
    for bit in range(8 * len(matrix.data)):
        flipped = bytearray(matrix.data)
        flipped[bit // 8] ^= 1 << bit % 8
        digests.add(matrices_digest([changed(matrix, data=bytes(flipped))]))
    assert len(digests) == 3 + 32


def test_no_chunk_has_the_digest_of_no_bytes() -> None:
    assert matrices_digest([]).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
