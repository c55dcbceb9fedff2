"""CIFAR-10's records, from files and from archives of every form."""

import contextlib
import gzip
import io
import tarfile
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vademecum.data import read_cifar10

RECORDS = 2
NAMES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
RNG = np.random.default_rng(0)
LABELS = RNG.integers(10, size=(6, RECORDS), dtype=np.uint8)
PIXELS = RNG.integers(256, size=(6, RECORDS, 3, 32, 32), dtype=np.uint8)
BATCHES = {
    name: b"".join(bytes([y]) + x.tobytes() for y, x in zip(LABELS[i], PIXELS[i], strict=True))
    for i, name in enumerate(NAMES)
}


def tar(members, *, pax: bool = False) -> bytes:
    buffer = io.BytesIO()
    form = tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data in members:
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(data)
            if pax:
                info.pax_headers = {"comment": "made by another tar"}
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


ORDERED = [("readme.html", b"<html>"), *BATCHES.items()]
TAR = tar(ORDERED)
TGZ = gzip.compress(TAR, 1)


def reading(folder, data: bytes, split: str = "all"):
    path = folder / "archive"
    path.write_bytes(data)
    return read_cifar10(path, split=split, records=RECORDS)


def is_right(result, batches=slice(None)) -> bool:
    x, y = PIXELS[batches].reshape(-1, 3, 32, 32), LABELS[batches].reshape(-1)
    return bool((result.x.numpy() == x).all() and (result.y.numpy() == y).all())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cifar")


@pytest.mark.parametrize(
    ("split", "batches"), [("train", slice(5)), ("test", slice(5, 6)), ("all", slice(None))]
)
@pytest.mark.parametrize(
    "form", ["tar.gz", "tar", "pax", "other order", "folder", "folder in folder"]
)
def test_every_form(tmp_path, form, split, batches):
    path = tmp_path / "cifar"
    if "folder" in form:
        inner = path / "cifar-10-batches-bin" if form == "folder in folder" else path
        inner.mkdir(parents=True)
        for name, data in BATCHES.items():
            (inner / name).write_bytes(data)
    else:
        other = {"tar": TAR, "pax": tar(ORDERED, pax=True), "other order": tar(ORDERED[::-1])}
        path.write_bytes(other.get(form, TGZ))
    result = read_cifar10(path, split=split, records=RECORDS)
    assert result.x.dtype == torch.uint8
    assert result.y.dtype == torch.int64
    assert result.x.is_contiguous()
    assert is_right(result, batches)


quick = settings(max_examples=80, deadline=None)


@quick
@given(data=st.data())
def test_every_truncation_is_refused(folder, data):
    with pytest.raises(ValueError, match="archive"):
        reading(folder, TGZ[: data.draw(st.integers(0, len(TGZ) - 1))])


@quick
@given(data=st.data())
def test_a_truncated_plain_tar_is_refused_or_lacks_only_padding(folder, data):
    keep = data.draw(st.integers(0, len(TAR) - 1))
    try:
        assert is_right(reading(folder, TAR[:keep]))
    except ValueError:
        return
    assert not any(TAR[keep:])


@quick
@given(place=st.integers(0, len(TGZ) - 1), flip=st.integers(1, 255))
def test_a_flipped_byte_changes_nothing_or_is_refused(folder, place, flip):
    changed = bytearray(TGZ)
    changed[place] ^= flip
    with contextlib.suppress(ValueError):
        assert is_right(reading(folder, bytes(changed)))


@quick
@given(more=st.binary(min_size=1, max_size=20), zipped=st.booleans())
def test_appended_bytes(folder, more, zipped):
    data = TGZ + more if zipped else TAR + more
    if more.strip(b"\0"):
        with pytest.raises(ValueError, match="archive must"):
            reading(folder, data)
    else:
        assert is_right(reading(folder, data))


@quick
@given(block=st.integers(0, 14), byte=st.integers(0, 511), flip=st.integers(1, 255))
def test_flipped_byte_of_a_tar_header(folder, block, byte, flip):
    starts, at = [], 0
    for _, data in ORDERED:
        starts.append(at)
        at += 512 + -(-len(data) // 512) * 512
    changed = bytearray(TAR)
    changed[starts[block % len(starts)] + byte] ^= flip
    with contextlib.suppress(ValueError):
        assert is_right(reading(folder, bytes(changed)))


def altered(name: str, data: bytes):
    return tar([(key, data if key == name else value) for key, value in ORDERED])


FIRST = BATCHES["data_batch_1.bin"]
LINK = tarfile.TarInfo("data_batch_1.bin")
LINK.type, LINK.linkname = tarfile.SYMTYPE, "/etc/hostname"

WRONG = {
    "foreign": (b"not an archive at all", "whole tar archive"),
    "empty": (b"", "whole tar archive"),
    "short batch": (
        altered("data_batch_1.bin", FIRST[:-1]),
        "6146 bytes long .2 records.*got 6145",
    ),
    "long batch": (altered("data_batch_1.bin", FIRST + b"x"), "must be 6146 bytes.*got 6147"),
    "fewer records": (altered("data_batch_1.bin", FIRST[:3073]), "must be 6146 bytes.*got 3073"),
    "label": (
        altered("data_batch_2.bin", b"\x0a" + FIRST[1:]),
        "data_batch_2.*labels 0 to 9, got 10",
    ),
    "missing": (tar(ORDERED[:-1]), "must hold test_batch.bin, but does not"),
    "twice": (tar([*ORDERED, ORDERED[1]]), "data_batch_1.bin in .* must be there once"),
    "link": (LINK.tobuf() + tar(ORDERED[2:]), "must hold data_batch_1.bin"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG.keys())
def test_archive_errors(tmp_path, data, message):
    with pytest.raises(ValueError, match=message):
        reading(tmp_path, data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "valid"}, "split must be one of 'train', 'test', 'all', got 'valid'"),
        ({"records": 0}, "records must be >= 1, got 0"),
    ],
)
def test_argument_errors(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        read_cifar10(tmp_path, **arguments)


def test_folder_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data_batch_1\.bin"):
        read_cifar10(tmp_path, records=RECORDS)
    (tmp_path / "data_batch_1.bin").write_bytes(FIRST[:-1])
    with pytest.raises(ValueError, match=r"data_batch_1\.bin must be 6146 bytes long"):
        read_cifar10(tmp_path, records=RECORDS)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.REGTYPE])
def test_decompression_bomb(tmp_path, kind):
    info = tarfile.TarInfo("readme.html")
    info.type, info.size = kind, 50 * 10**6
    bomb = gzip.compress(info.tobuf() + bytes(50 * 10**6) + TAR, 1)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="must unpack to at most"):
            reading(tmp_path, bomb)
        assert tracemalloc.get_traced_memory()[1] < 5 * 10**6
    finally:
        tracemalloc.stop()
