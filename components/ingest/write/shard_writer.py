"""The Beam step of ingest, apart from the executor: its workers start without importing TFX."""

from components.ingest.write.plan_writer import IngestJob, write_plan
from components.ingest.write.processes import PlanProcesses, are_worth_it
from components.records.shard_work import ConcurrentDoFn


class WriteShards(ConcurrentDoFn):
    """Writes the shards of each plan, and what is known of its files.

    Beam moves only the numbers of plans; an image never leaves its thread or process.
    """

    def __init__(self, job: IngestJob) -> None:
        """Write plans of `job`."""
        super().__init__(job.config.workers)
        self._job = job

    def setup(self) -> None:
        """Choose between threads and processes."""
        self._processes = PlanProcesses(self._job) if are_worth_it(self._job) else None

    def work(self, number: int) -> None:
        """Write the plan with this number."""
        if self._processes:
            self._processes.write_plan(number)
        else:
            write_plan(number, self._job)

    def teardown(self) -> None:
        """End the processes."""
        if self._processes:
            self._processes.close()
