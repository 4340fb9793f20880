"""What the API server answers to a request for a run, written as one line for each node."""

import datetime
from typing import Any


def nodes(state: str, *rows: str, stopped: int | None = None) -> dict[str, Any]:
    """Return an answer, which lists nodes of the Argo workflow.

    Args:
        state: State of the run.
        rows: Name, state (`-`: not started), start and end, in seconds since the run began.
        stopped: When somebody stopped the run.
    """
    # The launcher's entries in the same list have no name.
    details: list[dict[str, Any]] = [{"task_id": "x", "start_time": stamp("0")}]
    for row in rows:
        name, node_state, start, end = row.split()
        times = {"start_time": stamp(start), "end_time": stamp(end)}
        own = {} if node_state == "-" else {"state": node_state}
        details.append({"display_name": name, **own, **times})
    stops = [] if stopped is None else [{"update_time": stamp(str(stopped)), "state": "CANCELING"}]
    run_details = {"task_details": details}
    return {"state": state, "state_history": stops, "run_details": run_details}


def stamp(second: str) -> str:
    """Return the API's text for a time; the year 1 for `-`, none."""
    if second == "-":
        return "0001-01-01T00:00:00Z"
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(0, int(second))
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
