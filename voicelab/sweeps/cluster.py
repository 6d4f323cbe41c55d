"""ClusterWorkers: synthesis on those workers of a Dask cluster that have the same backend as this process."""

from __future__ import annotations

import asyncio
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from voicelab.backend import Backend
from voicelab.capabilities import Capabilities
from voicelab.clip import Take
from voicelab.errors import ExecutorError, RequestInvalid, shown_value
from voicelab.runs.failures import error_message
from voicelab.runs.folder import library_versions
from voicelab.sweeps.axes import Job
from voicelab.sweeps.workers import (
    CONCURRENCY,
    ExecutorWorkers,
    Factory,
    Workers,
    make_there,
    opened,
    under_way,
)

STRIKES: Final = 3
"""A worker is excluded after this many consecutive failures of takes that other workers complete. A take fails after it
has been lost this many times."""
_FAILURES: Final = 10
"""The sweep ends if this many takes have failed on every worker before any take succeeds; invalid requests do not
count."""
_CRASHES: Final = 6
"""The sweep ends if no worker is usable and workers have exited this many times while opening the backend (a nanny
restarts them)."""
NO_WORKER_S: Final = 120.0
"""Time in seconds after which a cluster that has no workers fails."""
SILENCE_S: Final = 30.0
"""Timeout in seconds for a scheduler that does not respond."""
_LOOK_S: Final = 0.5
# Libraries that may affect audio samples; other libraries only measure or transport them.
_SAMPLE_LIBRARIES: Final = ("voicelab", "numpy", "av", "soxr")


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Library versions of a worker, and fingerprints and devices of its backends by name."""

    host: str
    fingerprints: Mapping[str, str]
    devices: Mapping[str, str]
    versions: Mapping[str, str]

    @classmethod
    def of(cls, capabilities: Mapping[str, Capabilities]) -> WorkerReport:
        """Return the report of this process with backends that declare ``capabilities``."""
        fingerprints = {name: declared.fingerprint for name, declared in capabilities.items()}
        devices = {name: declared.device for name, declared in capabilities.items()}
        return cls(platform.node(), fingerprints, devices, library_versions())

    def mismatch(self, worker: WorkerReport) -> str:
        """Describe why a worker's takes would differ from those of this process; "" if they would not."""
        for name, fingerprint in self.fingerprints.items():
            if worker.fingerprints[name] != fingerprint:
                return f"its backend has the fingerprint {worker.fingerprints[name]}, the sweep's has {fingerprint}"
        libraries = _SAMPLE_LIBRARIES if set(self.devices.values()) != {"remote"} else _SAMPLE_LIBRARIES[:1]
        for library in libraries:
            theirs, ours = worker.versions.get(library, ""), self.versions.get(library, "")
            if theirs and ours and theirs != ours:
                return f"it has {library} {theirs}, the sweep {ours}"
        return ""


def report_there(factories: Mapping[str, Factory]) -> WorkerReport:
    """Open the backends in this process and return a report. Raises the errors of a backend that cannot be opened."""
    return WorkerReport.of({name: opened(factory).capabilities for name, factory in factories.items()})


def make_at(*arguments: Any) -> tuple[str, Take | Exception]:
    """Synthesize a take with ``make_there``; return the address of this worker, and the take or the error."""
    from distributed import get_worker, secede
    from distributed.protocol.pickle import dumps, loads

    address: str = get_worker().address
    # The backend batches concurrent takes, so a worker runs all takes that it receives, regardless of its thread count.
    secede()  # type: ignore[no-untyped-call]
    try:
        return address, make_there(*arguments)
    except Exception as error:  # noqa: BLE001 - evaluated with the failures of all workers
        try:
            loads(dumps(error))  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - an error that cannot be pickled
            return address, ExecutorError(error_message(error))
        return address, error


class _Reduced:
    """A function call that is executed when this object is unpickled."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


@dataclass(eq=False, slots=True)
class _Task:
    """A pending take: its job, the future that the sweep waits for, Dask's future, and the workers tried so far."""

    job: Job
    future: Future[Take] = field(default_factory=Future)
    sent: Any = None
    address: str = ""
    tried: dict[str, Exception] = field(default_factory=dict)
    losses: int = 0


@dataclass(eq=False, slots=True)
class _Member:
    """A worker of the cluster. ``probe`` is Dask's future of the worker's report; ``reason`` is that of an exclusion.

    ``streak`` contains the latest consecutive failed takes; a value is True if another worker has completed the take.
    """

    address: str
    name: str
    probe: Any = None
    fit: bool = False
    reason: str = ""
    good: bool = False
    failure: str = ""
    streak: dict[_Task, bool] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        return self.fit and not self.reason

    def __str__(self) -> str:
        return self.address if self.name in {"", self.address} else f"{self.name} ({self.address})"


class ClusterWorkers(Workers):
    """Workers of a cluster. Every worker, including late joiners, reports its backends before it receives takes.

    A worker is excluded, and a note added, if it cannot open a backend, has other fingerprints or library versions than
    this process, or fails ``STRIKES`` consecutive takes that other workers complete. A failed take is retried on other
    workers.

    Args:
        client: a ``distributed.Client``.
        capabilities: capabilities of each backend in this process.
        factories: functions that open each backend on a worker.
        concurrency: total number of concurrent takes; if None, each worker has ``per_worker`` takes.
        per_worker: number of concurrent takes on a worker, whose backend batches them.
    """

    def __init__(
        self,
        client: Any,
        capabilities: Mapping[str, Capabilities],
        factories: Mapping[str, Factory],
        concurrency: int | None,
        per_worker: int,
    ) -> None:
        from distributed.protocol.pickle import dumps, loads

        self._client = client
        self._dumps: Callable[[object], bytes] = dumps
        self._loads: Callable[[bytes], Any] = loads
        self._factories = {name: factories[name] for name in capabilities}
        self._here = WorkerReport.of(capabilities)
        self._concurrency, self._per_worker = concurrency, per_worker
        self._lock = threading.RLock()
        self._members: dict[str, _Member] = {}
        self._crashes = self._failures = 0
        self._succeeded = False
        self._waiting: list[_Task] = []
        self._tasks: set[_Task] = set()
        self._notes: dict[str, None] = {}
        self._call: Any = None
        self._looked = 0.0
        self._heard = self._manned = time.monotonic()
        self._over = False

    @property
    def concurrency(self) -> int:
        """Maximum number of concurrent takes."""
        usable = sum(member.usable for member in tuple(self._members.values()))
        return self._concurrency or self._per_worker * max(usable, 1)

    @property
    def notes(self) -> tuple[str, ...]:
        """Excluded workers, with the reasons, as sentences."""
        return tuple(self._notes)

    def submit(self, job: Job) -> Future[Take]:
        """Begin a take, or queue it until a worker is usable."""
        task = _Task(job)
        with self._lock:
            self._tasks.add(task)
            self._waiting.append(task)
            self._send_waiting()
        return task.future

    def watch(self) -> None:
        """Check workers and lost takes. Raises ExecutorError if the scheduler or every usable worker is lost."""
        clock = time.monotonic()
        if self._over or clock < self._looked + _LOOK_S:
            return
        self._looked = clock
        status = self._client.status
        if status == "running":
            try:
                threads = self._client.nthreads(callback_timeout=SILENCE_S)
                names = (
                    {} if set(threads) <= set(self._members) else self._client.scheduler_info(n_workers=-1)["workers"]
                )
            except Exception:  # noqa: BLE001 - Dask raises many kinds; the time since the last answer counts
                status = "silent"
            else:
                self._heard = time.monotonic()
                with self._lock:
                    self._update(threads, names)
                    self._send_waiting()
        if status in {"closing", "closed"} or time.monotonic() - self._heard > SILENCE_S:
            raise ExecutorError("the connection to the Dask scheduler was lost")
        with self._lock:
            self._check_usable()

    def cancel(self) -> None:
        """Cancel all takes; takes that run on workers finish there."""
        with self._lock:
            self._over = True
            for task in tuple(self._tasks):
                self._release(task)
                self._end(task, CancelledError())

    def close(self) -> None:
        """Cancel the remaining takes; the client stays open."""
        self.cancel()

    def _update(self, threads: Mapping[str, int], names: Mapping[str, Any]) -> None:
        """Request reports from new workers, and remove workers that are gone."""
        for address in set(self._members) - set(threads):
            member = self._members.pop(address)
            if member.probe is not None:
                member.probe.release()
                self._crashes += 1
        for address in set(threads) - set(self._members):
            name = str(names.get(address, {}).get("name", address))
            member = self._members[address] = _Member(address, name)
            member.probe = self._begin(report_there, self._factories, workers=[address])
            self._follow(member.probe, lambda answer, member=member: self._reported(member, answer))
        if threads:
            self._manned, self._call = time.monotonic(), None
        elif self._call is None:  # an adaptive cluster starts workers for tasks only
            self._call = self._begin(report_there, self._factories)

    def _begin(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        # pure=False, since Dask merges equal calls of pure functions; as bytes, since a worker or scheduler that lacks
        # voicelab would exit on receiving one of its functions.
        call = self._dumps(_Reduced(function, arguments))
        return self._client.submit(self._loads, call, pure=False, allow_other_workers=False, **options)

    def _follow(self, sent: Any, receive: Any) -> None:
        """Pass the result of a Dask future to ``receive`` as a completed future."""

        async def answer() -> Any:
            return await sent

        def received(future: Future[Any]) -> None:
            with self._lock:
                if not self._over:
                    receive(future)

        asyncio.run_coroutine_threadsafe(answer(), self._client.loop.asyncio_loop).add_done_callback(received)

    def _reported(self, member: _Member, answer: Future[WorkerReport]) -> None:
        try:
            reason = self._here.mismatch(answer.result())
        except CancelledError:
            return  # the worker or the scheduler is gone
        except Exception as error:  # noqa: BLE001 - any reason why a worker cannot open a backend
            reason = f"it cannot open the backend: {error_message(error)}"
        member.probe, member.fit = None, True
        if reason:
            self._leave_out(member, reason)
        self._send_waiting()

    def _leave_out(self, member: _Member, reason: str) -> None:
        member.reason = reason
        self._notes[f"The worker {member} was excluded: {reason}."] = None

    def _usable(self) -> list[_Member]:
        return [member for member in self._members.values() if member.usable]

    def _check_usable(self) -> None:
        members = tuple(self._members.values())
        if members and all(member.reason for member in members):
            reasons = "; ".join(f"{member}: {member.reason}" for member in members)
            raise ExecutorError(f"no worker of the cluster can synthesize the takes of the sweep: {reasons}")
        if self._failures >= _FAILURES and not self._succeeded:
            failures = "; ".join(f"{member}: {member.failure}" for member in members if member.failure)
            raise ExecutorError(f"the first {self._failures} takes failed on every worker of the cluster: {failures}")
        if self._crashes >= _CRASHES and not self._usable():
            raise ExecutorError(f"workers of the cluster exited {self._crashes} times while they opened the backend")
        if not members and time.monotonic() - self._manned > NO_WORKER_S:
            raise ExecutorError(f"the cluster has had no worker for {NO_WORKER_S:.0f} s; start workers, and run again")

    def _send_waiting(self) -> None:
        """Send waiting takes, and resend the takes of workers that are gone or excluded."""
        usable = {member.address for member in self._usable()}
        for task in self._tasks:
            if task.sent is not None and task.address not in usable:
                self._release(task)
                self._waiting.append(task)
        if self._client.status != "running":
            return
        # A worker that has not reported yet may still complete takes that failed on the others.
        complete = all(member.probe is None for member in self._members.values())
        loads = Counter(task.address for task in self._tasks if task.sent is not None)
        for task in tuple(self._waiting):
            address = min(self._choices(task), key=lambda address: loads[address], default="")
            if address and loads[address] < self._per_worker:
                self._waiting.remove(task)
                loads[address] += 1
                self._send(task, address)
            elif complete and usable and usable <= set(task.tried):
                self._fail(task)

    def _choices(self, task: _Task) -> list[str]:
        """List the workers that may run a take now.

        Retries prefer workers that have completed takes. First attempts avoid workers whose last ``STRIKES`` takes
        failed.
        """
        usable = [member for member in self._usable() if member.address not in task.tried]
        if not task.tried:
            usable = [member for member in usable if len(member.streak) < STRIKES]
        good = [member for member in usable if member.good] if task.tried else usable
        return [member.address for member in good or usable]

    def _send(self, task: _Task, address: str) -> None:
        name, job = task.job.cell.backend, task.job
        arguments = (self._factories[name], job.call, job.repeat, self._here.fingerprints[name])
        task.address = address
        sent = task.sent = self._begin(make_at, *arguments, workers=[address])

        def receive(answer: Future[tuple[str, Take | Exception]]) -> None:
            if task.sent is sent:
                task.sent = None
                self._judge(task, answer)
                self._send_waiting()

        self._follow(sent, receive)

    def _release(self, task: _Task) -> None:
        sent, task.sent = task.sent, None
        if sent is not None:
            sent.release()

    def _judge(self, task: _Task, answer: Future[tuple[str, Take | Exception]]) -> None:
        """Complete a take, let it fail, or queue it for another worker, according to the answer; update the worker."""
        try:
            address, answered = answer.result()
        except CancelledError:
            task.losses += self._client.status == "running"
            if task.losses < STRIKES:
                self._waiting.append(task)
            else:
                self._end(task, ExecutorError(f"the cluster cancelled the take {STRIKES} times"))
            return
        except Exception as error:  # noqa: BLE001 - the take crashed its workers, or Dask cannot serialize it
            self._end(task, error)
            return
        member = self._members.get(address) or _Member(address, "")
        if isinstance(answered, Take):
            member.good = self._succeeded = True
            member.streak.clear()
            for peer in self._members.values():
                if task in peer.streak:
                    peer.streak[task] = True
                    if sum(peer.streak.values()) >= STRIKES and not peer.reason:
                        self._leave_out(
                            peer, f"it failed {STRIKES} consecutive takes that others completed: {peer.failure}"
                        )
            self._end(task, answered)
            return
        confirmed = bool(task.tried) and member.good and not member.streak
        task.tried[address], member.failure = answered, error_message(answered)
        member.streak[task] = False
        if confirmed:
            self._fail(task)
        else:
            self._waiting.append(task)

    def _fail(self, task: _Task) -> None:
        """Fail a take with its first error."""
        for member in self._members.values():
            member.streak.pop(task, None)
        error = next(iter(task.tried.values()))
        self._failures += not isinstance(error, RequestInvalid)
        self._end(task, error)

    def _end(self, task: _Task, result: Take | BaseException) -> None:
        self._tasks.discard(task)
        if task in self._waiting:
            self._waiting.remove(task)
        if isinstance(result, Take):
            task.future.set_result(result)
        elif isinstance(result, CancelledError):
            task.future.cancel()
        else:
            task.future.set_exception(result)


def workers_for(
    executor: Any, backends: Mapping[str, Backend], factories: Mapping[str, Factory], concurrency: int | None
) -> Workers:
    """Create the workers of an executor.

    Args:
        executor: None for threads of this process, a ``concurrent.futures.Executor``, or a
            ``dask.distributed.Client`` (which is not imported here).
        backends: the backends of this process by name.
        factories: functions that open each backend in another process.
        concurrency: number of concurrent takes. The default is 1.5 times the number of concurrent requests that the backend
            declares, or 8 if it declares none; for several backends, the minimum of these. On a cluster, the default applies
            to each worker. For an executor with processes, the default is 8.

    Raises RequestInvalid for an unsupported executor, or a backend that cannot be opened in another process.
    """
    if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
        raise RequestInvalid.of(
            "concurrency", f"must be a whole number, 1 or more, got {shown_value(concurrency)}", type="int_type"
        )
    if executor is None:
        concurrency = concurrency or under_way(backends)
        threads = ThreadPoolExecutor(concurrency, thread_name_prefix="voicelab-take")
        return ExecutorWorkers(threads, concurrency, backends, shut_down=True)
    if isinstance(executor, ThreadPoolExecutor):
        return ExecutorWorkers(executor, concurrency or under_way(backends), backends)
    cluster = hasattr(executor, "get_executor")
    if not (cluster or isinstance(executor, Executor)) or getattr(executor, "asynchronous", False):
        message = f"executor must be a concurrent.futures executor or a Dask client, got {type(executor).__name__}"
        if cluster:
            message = "the Dask client must not be asynchronous; sweeps run in a separate thread"
        raise RequestInvalid.of("executor", message, type="executor_invalid")
    missing = sorted(name for name in backends if name not in factories)
    if missing:
        message = (
            f"must have a function that opens the backend {missing[0]!r}, since other processes cannot open it by an "
            "address; define the function in a module"
        )
        raise RequestInvalid.of("factories", message, type="missing")
    if not cluster:
        return ExecutorWorkers(executor, concurrency or CONCURRENCY, backends, factories)
    capabilities = {name: backend.capabilities for name, backend in backends.items()}
    return ClusterWorkers(executor, capabilities, factories, concurrency, under_way(backends))
