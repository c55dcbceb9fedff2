"""Checkpoints that were damaged by accident or by intent, in many ways."""

import hashlib
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Mutation = Callable[[Path, random.Random], None]


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def reseal(folder: Path, **entries: Any) -> None:
    """Write a manifest that fits what lies there now, as one who wants to deceive would."""
    listed = {}
    for path in files(folder):
        if path.name != "manifest.json":
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            listed[path.name] = {"bytes": len(content), "sha256": digest}
    write_manifest(folder, listed | entries)


def write_manifest(folder: Path, listed: Any) -> None:
    content = {"format": "vademecum/checkpoint/1", "files": listed}
    text = json.dumps(content, indent=1, sort_keys=True)
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    (folder / "manifest.json").write_text(text)


# By accident


def flip_a_bit(folder: Path, draw: random.Random) -> None:
    path = draw.choice(files(folder))
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def flip_bits_of_a_header(folder: Path, draw: random.Random) -> None:
    path = draw.choice([p for p in files(folder) if p.suffix == ".safetensors"])
    content = bytearray(path.read_bytes())
    for _ in range(3):
        content[draw.randrange(min(len(content), 60))] ^= 1 << draw.randrange(8)
    path.write_bytes(content + b"\0")


def truncate(folder: Path, draw: random.Random) -> None:
    path = draw.choice(files(folder))
    os.truncate(path, draw.randrange(path.stat().st_size))


def extend(folder: Path, draw: random.Random) -> None:
    with open(draw.choice(files(folder)), "ab") as file:
        file.write(draw.randbytes(draw.randrange(1, 20)))


def zero_a_span(folder: Path, draw: random.Random) -> None:
    path = draw.choice(files(folder))
    content = bytearray(path.read_bytes())
    start = draw.randrange(len(content))
    content[start : start + 512] = bytes(len(content[start : start + 512]))
    path.write_bytes(content if any(content) and content != path.read_bytes() else b"")


def remove(folder: Path, draw: random.Random) -> None:
    draw.choice(files(folder)).unlink()


def swap(folder: Path, draw: random.Random) -> None:
    one, other = draw.sample([p for p in files(folder) if p.name != "manifest.json"], 2)
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])


def add(folder: Path, draw: random.Random) -> None:
    name = draw.choice(["extra.safetensors", "notes.txt", ".hidden", "pickle.pt", "ä\n.json"])
    (folder / name).write_bytes(draw.randbytes(8))


# With forged manifests


def list_a_path(folder: Path, draw: random.Random) -> None:
    name = draw.choice(["../secret", "/etc/passwd", "..", ".", "", "a/b", "manifest.json", "a\0b"])
    reseal(folder, **{name: {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}})


def list_nonsense(folder: Path, draw: random.Random) -> None:
    odd = [None, -1, "x", [], {}, 1e308, True, {"bytes": "1", "sha256": 1}, {"bytes": True}]
    if draw.random() < 0.5:
        write_manifest(folder, draw.choice(odd[:-1]))
    else:
        reseal(folder, **{draw.choice(files(folder)).name: draw.choice(odd)})


def link_away(folder: Path, draw: random.Random) -> None:
    path = draw.choice(files(folder))
    target = draw.choice(["/dev/zero", "/dev/random", "/", str(path.resolve()) + ".copy"])
    shutil.copy(path, folder.parent / f"{path.name}.copy")
    path.unlink()
    path.symlink_to(target if not target.endswith(".copy") else folder.parent / f"{path.name}.copy")


def put_a_pipe(folder: Path, draw: random.Random) -> None:
    path = draw.choice(files(folder))
    path.unlink()
    os.mkfifo(path) if draw.random() < 0.5 else path.mkdir()


def deep_json(folder: Path, draw: random.Random) -> None:
    depth = draw.choice([200, 5_000, 100_000, 300_000])
    text = draw.choice(["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth])
    name = draw.choice(["state.json", "manifest.json"])
    (folder / name).write_text(text)
    if name == "state.json":
        reseal(folder)


def odd_json(folder: Path, draw: random.Random) -> None:
    text = draw.choice(["", "null", "[]", "{}", "nan", '{"step": 1}', "9" * 10_000, "\ud800a", "{"])
    (folder / "state.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    reseal(folder)


def huge_header(folder: Path, draw: random.Random) -> None:
    path = draw.choice([p for p in files(folder) if p.suffix == ".safetensors"])
    content = bytearray(path.read_bytes())
    length = draw.choice([2**63 - 1, 2**64 - 1, 2**40, 10**8, len(content) + 1, 0, 1])
    content[:8] = struct.pack("<Q", length)
    path.write_bytes(content)
    reseal(folder)


def odd_header(folder: Path, draw: random.Random) -> None:
    path = draw.choice([p for p in files(folder) if p.suffix == ".safetensors"])
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    name = draw.choice([n for n in header if n != "__metadata__"])
    entry = header[name]
    change = draw.randrange(5)
    if change == 0:
        header[f"{name}.other"] = header.pop(name)
    elif change == 1:
        entry["shape"] = [2**40, 2**40]
    elif change == 2:
        entry["data_offsets"] = [0, 2**62]
    elif change == 3:
        entry["dtype"] = "F1024"
    else:
        header = "[" * 50_000
    text = json.dumps(header).encode() if isinstance(header, dict) else header.encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])
    reseal(folder)


def odd_state(folder: Path, draw: random.Random) -> None:
    """Change the form of what `state.json` says, with hashes that fit."""
    path = folder / "state.json"
    document = json.loads(path.read_text())
    place = draw.choice(
        [
            *(("step",), ("configuration",), ("environment",), ("state",), ("state", "model")),
            *(("state", "optimizer"), ("state", "random"), ("state", "rest"), ("state", "average")),
            *(("state", "random", "0", "python"), ("state", "rest", "schedules")),
            *(("state", "optimizer", "model", "groups"), ("state", "optimizer", "model", "state")),
            *(("state", "average", "model", "means"), ("state", "model", "parameters")),
        ]
    )
    at = document
    for word in place[:-1]:
        at = at[word]
    odd = [None, -3, "text", [[]], {"$tensor": "none"}, {"$odd": 1}, {"$tuple": 3}, "gone"]
    value = draw.choice(odd)
    if value == "gone":
        del at[place[-1]]
    else:
        at[place[-1]] = value
    path.write_text(json.dumps(document, indent=1))
    reseal(folder)


ACCIDENTS: list[Mutation] = [
    flip_a_bit, flip_bits_of_a_header, truncate, extend, zero_a_span, remove, swap, add
]  # fmt: skip
FORGERIES: list[Mutation] = [
    list_a_path, list_nonsense, link_away, put_a_pipe, deep_json, odd_json, huge_header,
    odd_header, odd_state,
]  # fmt: skip
