"""IDX files: what was written comes back, and nothing else does."""

import gzip
import math
import struct
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vademecum.data import read_idx

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
SIZES = {0x08: 1, 0x09: 1, 0x0B: 2, 0x0C: 4, 0x0D: 4, 0x0E: 8}


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(
        f">BBBB{array.ndim}I", 0, 0, CODES[array.dtype.str[1:]], array.ndim, *array.shape
    )
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def reading(folder, data: bytes) -> torch.Tensor:
    path = folder / "file"
    path.write_bytes(data)
    return read_idx(path)


def is_consistent(data: bytes) -> bool:
    """The format's definition, written a second time."""
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in SIZES or data[3] > 64:
        return False
    start = 4 + 4 * data[3]
    shape = [int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4)]
    return len(data) >= start and len(data) == start + math.prod(shape) * SIZES[data[2]]


arrays = st.sampled_from(sorted(CODES)).flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
quick = settings(max_examples=150, deadline=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("idx")


@quick
@given(array=arrays, zipped=st.booleans())
def test_round_trip(folder, array, zipped):
    data = idx(array)
    result = reading(folder, gzip.compress(data, 1) if zipped else data).numpy()
    assert result.dtype == array.dtype
    assert result.shape == array.shape
    assert result.tobytes() == array.tobytes()


@quick
@given(array=arrays, data=st.data(), zipped=st.booleans())
def test_every_truncation_is_refused(folder, array, data, zipped):
    whole = gzip.compress(idx(array), 1) if zipped else idx(array)
    short = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(ValueError, match="file"):
        reading(folder, short)


@quick
@given(array=arrays, more=st.binary(min_size=1, max_size=20), zipped=st.booleans())
def test_appended_bytes_are_refused(folder, array, more, zipped):
    with pytest.raises(ValueError, match="but holds more"):
        reading(folder, gzip.compress(idx(array) + more, 1) if zipped else idx(array) + more)


@quick
@given(array=arrays, more=st.binary(min_size=1, max_size=20))
def test_bytes_after_a_gzip_stream_are_refused_unless_padding(folder, array, more):
    data = gzip.compress(idx(array), 1) + more
    if more.strip(b"\0"):
        with pytest.raises(ValueError, match="whole gzip"):
            reading(folder, data)
    else:
        assert reading(folder, data).numpy().tobytes() == array.tobytes()


@quick
@given(array=arrays, data=st.data(), flip=st.integers(1, 255))
def test_flipped_header_byte(folder, array, data, flip):
    changed = bytearray(idx(array))
    changed[data.draw(st.integers(0, 3 + 4 * array.ndim))] ^= flip
    if not is_consistent(bytes(changed)):
        with pytest.raises(ValueError, match="file"):
            reading(folder, bytes(changed))
        return
    result = reading(folder, bytes(changed))
    assert list(result.shape) == list(struct.unpack_from(f">{changed[3]}I", changed, 4))
    assert idx(result.numpy()) == changed


@quick
@given(array=arrays, data=st.data(), flip=st.integers(1, 255))
def test_flipped_byte_of_a_gzip_stream(folder, array, data, flip):
    changed = bytearray(gzip.compress(idx(array), 1))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= flip
    try:
        result = reading(folder, bytes(changed))
    except ValueError:
        return
    assert idx(result.numpy()) == idx(array)


@quick
@given(data=st.binary(max_size=40))
def test_foreign_bytes(folder, data):
    if not is_consistent(data):
        with pytest.raises(ValueError, match="file"):
            reading(folder, data)


HEADER = bytes([0, 0, 8, 1])

WRONG = {
    "empty": (b"", "starts with nothing"),
    "text": (b"label,pixel", "starts with 6c 61 62 65"),
    "type": (bytes([0, 0, 0x0A, 0]), "08, 09, 0b, 0c, 0d, 0e"),
    "axes": (bytes([0, 0, 8, 65]) + bytes(300), "at most 64"),
    "header": (bytes([0, 0, 8, 2, 0, 0, 0, 1]), "sizes of 2 axes, but ends"),
    "short": (HEADER + b"\0\0\0\5abcd", r"5 entries of uint8: 13 bytes, but holds at most 12"),
    "long": (HEADER + b"\0\0\0\5abcdef", r"5 entries of uint8: 13 bytes, but holds more"),
    "no array": (bytes([0, 0, 8, 4]) + bytes(4) + b"\xff" * 12, "no array can hold"),
    "short gzip": (gzip.compress(HEADER + b"\0\0\0\5abcd"), "13 bytes, but holds 12"),
    "cut gzip": (gzip.compress(HEADER + b"\0\0\0\4abcd")[:-6], "whole gzip file"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG.keys())
def test_errors(tmp_path, data, message):
    with pytest.raises(ValueError, match=message):
        reading(tmp_path, data)


def peak_of_refusal(folder, data: bytes) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="file has a header that states"):
            reading(folder, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_memory_for_what_is_not_there(tmp_path):
    four_gigabytes = HEADER + b"\xff" * 4
    assert peak_of_refusal(tmp_path, four_gigabytes + bytes(12)) < 10**6
    assert peak_of_refusal(tmp_path, gzip.compress(four_gigabytes + bytes(12))) < 10**6


def test_decompression_bomb(tmp_path):
    bomb = gzip.compress(HEADER + b"\0\0\0\5" + bytes(50 * 10**6), 9)
    assert peak_of_refusal(tmp_path, bomb) < 10**6


def test_64_axes(tmp_path):
    array = np.full((1,) * 64, 7, np.uint8)
    assert reading(tmp_path, idx(array)).sum() == 7


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_idx(tmp_path / "nothing")
