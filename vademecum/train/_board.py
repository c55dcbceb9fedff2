"""Curves for TensorBoard, which is a package of its own."""

from pathlib import Path
from types import TracebackType
from typing import Any

from vademecum.errors import UsageError
from vademecum.train._training import Training

__all__ = ["Board"]


class Board:
    """Writes what each step has found into `folder/tensorboard`.

    Args:
        folder: The folder of the run.
        step: The last step that stays of what is there.

    Raises:
        UsageError: If TensorBoard is not installed.
    """

    def __init__(self, folder: Path, step: int):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UsageError(
                'tensorboard needs the package of that name: pip install "vademecum[tensorboard]"'
            ) from error
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def note(self, training: Training, found: dict[str, float]) -> None:
        """Write what a step has found."""
        for name, x in found.items():
            self._writer.add_scalar(name.replace(".", "/"), x, training.step)

    def __enter__(self) -> "Board":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._writer.close()
