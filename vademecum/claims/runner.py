"""Running many claims with many seeds, on whatever executes functions.

`run` takes any `concurrent.futures.Executor`: the default is a pool of processes that can be killed
(`vademecum.claims.workers`); a thread pool, or Dask's or Ray's client executor on a cluster, will
do as well. What comes back is the same, since a run is a pure function of (id, seed, knobs).
"""

import importlib
from collections.abc import Generator, Iterable
from concurrent.futures import Executor, Future, as_completed
from contextlib import ExitStack

from vademecum.claims.ledger import LEDGER, Claim
from vademecum.claims.report import Report
from vademecum.claims.workers import Workers

__all__ = ["run"]


def run(
    claims: Iterable[Claim],
    seeds: Iterable[int] = (0,),
    executor: Executor | None = None,
    *,
    jobs: int | None = None,
    limit: float | None = None,
    full: bool = False,
) -> Generator[Report, None, None]:
    """Run claims with seeds, the longest first, and yield reports as they come.

    A claim that raises, hangs or takes its process down is reported as broken or overdue, and the
    others go on. Stopping the iteration early kills what is under way.

    Args:
        claims: What to run; each must be defined in a module that workers can import.
        seeds: Each claim runs once with each seed.
        executor: Where to run. Without one, worker processes are started for this call; as with
            any process pool, a script must then guard its entry by `if __name__ == "__main__"`.
        jobs: How many worker processes to start; the number of cores by default.
        limit: Seconds after which a worker is killed and its claim is overdue. By default a minute,
            or twenty times the budget of the claim with the largest. An executor of your own keeps
            its own limits.
        full: Use the thorough knobs where a claim has them.
    """
    claims, seeds = sorted(claims, key=lambda c: (-c.budget, c.id)), tuple(seeds)
    if limit is None:
        limit = max([60.0, *(20 * c.budget for c in claims)])
    with ExitStack() as stack:
        if executor is None:
            executor = Workers(jobs, limit=limit)
            stack.callback(executor.shutdown, cancel_futures=True)
        tasks: dict[Future[Report], tuple[str, int]] = {
            executor.submit(_run_one, c.check.__module__, c.id, seed, full): (c.id, seed)
            for c in claims
            for seed in seeds
        }
        stack.callback(lambda: [future.cancel() for future in tasks])
        for future in as_completed(tasks):
            if not future.cancelled():  # by an executor that was shut down
                yield _outcome(future, *tasks[future])


def _run_one(module: str, name: str, seed: int, full: bool) -> Report:
    importlib.import_module(module)
    return LEDGER[name].run(seed, full=full)


def _outcome(future: Future[Report], name: str, seed: int) -> Report:
    error = future.exception()
    if error is None:
        return future.result()
    message = f"{type(error).__name__}: {error}"
    return Report(name, seed, error=message, overdue=isinstance(error, TimeoutError))
