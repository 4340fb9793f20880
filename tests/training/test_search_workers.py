"""Workers on other machines that train trials: the connection between them and the search."""

import selectors
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from components.contract.errors import ConfigurationError, DataError, WorkerError
from pipeline_def.training.distribution.cluster import Cluster
from pipeline_def.training.distribution.peer import connect
from pipeline_def.training.distribution.process_apart import Receive, Send
from pipeline_def.training.search.workers import gather_workers, serve
from tests.training.distribution.test_gathering import clusters
from tests.training.distribution.trainer_process import cluster


def start(function: Callable[[], Any]) -> list[Any]:
    """Call a function in a thread; its error, or "done", comes into the list."""
    said: list[Any] = []

    def call() -> None:
        try:
            function()
        except Exception as error:
            said.append(error)
        else:
            said.append("done")

    threading.Thread(target=call, daemon=True).start()
    return said


def double(receive: Receive, send: Send) -> None:
    while True:
        send({"twice": 2 * receive()["number"]})


def wait_for(said: list[Any]) -> Any:
    for _ in range(200):
        if said:
            return said[0]
        threading.Event().wait(0.05)
    pytest.fail("The worker has not ended.")


def test_workers_answer_until_the_search_ends() -> None:
    chief, *others = clusters(3)
    ended = [start(partial(serve, of, double, seconds=1)) for of in others]
    with gather_workers(chief, seconds=5) as workers:
        for number, worker in enumerate(workers, 1):
            worker.send({"number": number})
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                selector.register(worker, selectors.EVENT_READ)
                assert selector.select(5)
        assert [worker.receive() for worker in workers] == [{"twice": 2}, {"twice": 4}]
    assert [wait_for(said) for said in ended] == ["done", "done"]


def test_a_worker_that_ends_or_fails() -> None:
    def fail(receive: Receive, send: Send) -> None:
        raise errors[receive()]

    errors = {"end": MemoryError(), "fail": DataError("The shards are gone.")}
    for order, error in errors.items():
        chief, other = clusters(2)
        said = start(partial(serve, other, fail, seconds=1))
        with gather_workers(chief, seconds=5) as [worker]:
            worker.send(order)
            assert wait_for(said) is error
            if order == "end":
                assert worker.receive() is None
            else:
                with pytest.raises(DataError, match="The shards are gone"):
                    worker.receive()


def test_workers_with_another_tf_config_are_refused() -> None:
    chief, other, _ = clusters(3)
    wrong = Cluster({"worker": (chief.chief, "elsewhere:1")}, "worker", 1)
    listed = "worker 1 and the chief have different lists of processes in TF_CONFIG."
    twice = "Two processes say that they are worker 1 of TF_CONFIG."
    for others, problem in ([wrong], listed), ([other, other], twice):
        ended = [start(partial(serve, of, double, seconds=1)) for of in others]
        with pytest.raises(ConfigurationError) as refused, gather_workers(chief, seconds=5):
            pass
        assert str(refused.value) == problem
        assert problem in [str(wait_for(said)) for said in ended]


def test_workers_that_are_missing() -> None:
    chief, other, _ = clusters(3)
    said = start(partial(serve, other, double, seconds=1))

    def scan() -> None:
        peer = connect(chief.chief, 5)
        peer.send(["no worker"])
        peer.close()

    start(scan)
    message = "1 of 2 other workers have connected within 1 s"
    with pytest.raises(WorkerError, match=message), gather_workers(chief, seconds=1):
        pass
    assert wait_for(said) == "done"
    with pytest.raises(WorkerError, match="cannot be reached"):
        serve(other, double, seconds=0.1)


def test_the_step_of_a_worker_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline_def.training.search import executor, side_by_side

    served: list[Any] = []
    monkeypatch.setattr(executor, "serve", lambda *given: served.append(given))
    monkeypatch.setenv("TF_CONFIG", cluster(2)[1]["TF_CONFIG"])
    executor.Executor().Do({}, {}, {})
    [(worker, answer)] = served
    assert (worker.name, answer) == ("worker 1", side_by_side.answer)


@pytest.mark.parametrize("alone", [None, clusters(1)[0]])
def test_a_machine_alone_waits_for_nobody(alone: Cluster | None) -> None:
    with gather_workers(alone) as workers:
        assert workers == ()
