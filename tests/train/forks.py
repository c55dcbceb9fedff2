"""Functions in processes of their own, made by a fork, so that each costs next to nothing."""

import faulthandler
import os
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

VARIABLE = "VADEMECUM_FORKS"
ONLY_FRESH = pytest.mark.skipif(VARIABLE not in os.environ, reason="see test_in_a_fresh_process")
GONE = 113  # the exit code of a function that has raised something
PATIENCE = 45  # seconds after which a process that waits in vain tells where, and ends


def fork(function: Callable[[], Any], **environment: Any) -> int:
    """Start a function in a process of its own; its number."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 fears threads, of which ours hold no locks
        number = os.fork()
    if number:
        return number
    code = GONE
    faulthandler.dump_traceback_later(PATIENCE, exit=True, file=2)  # not what pytest puts there
    torch.set_num_threads(1)  # the threads of the process before are not there
    try:
        os.environ.update({name: str(value) for name, value in environment.items()})
        function()
        code = 0
    except SystemExit as ending:
        code = int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ends(numbers: Sequence[int]) -> list[int]:
    """Wait for processes; their exit codes, or minus the signal that has killed one."""
    return [os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in numbers]


def alone(function: Callable[[], Any]) -> int:
    """Run a function in a process of its own; its exit code."""
    return ends([fork(function)])[0]


def together(size: int, function: Callable[[], Any]) -> list[int]:
    """Run a function in some processes that find each other as under torchrun."""
    return ends(start_together(size, function))


def start_together(size: int, function: Callable[[], Any]) -> list[int]:
    """Start a function in some processes that find each other as under torchrun."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": size}
    return [fork(function, RANK=rank, LOCAL_RANK=rank, **place) for rank in range(size)]
