"""The real web server, daemon and code servers for tests, and the questions that tests ask them over GraphQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from graphmill.assets.building import guard
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.machine.ui import dev_arguments, server_environment
from graphmill.jobs.runs.instance import init_home
from tests.jobs.runs.processes import unused_port, wait_for

LOCATION = "graphmill"
FINISHED = ("SUCCESS", "FAILURE", "CANCELED")


class Server:
    """The processes of `graphmill ui` over a home and a folder of pipelines, started from an unrelated directory.

    Args:
        folder: holds home/, pipelines/ and the log.
        workspaces: workspace files.
        env: more environment variables of all its processes.
        names: under which a proxy serves it.
    """

    def __init__(
        self, folder: Path, workspaces: list[Path], env: dict[str, str] | None = None, names: tuple[str, ...] = ()
    ):
        self.folder, self.home, self.pipelines = folder, folder / "home", folder / "pipelines"
        self.pipelines.mkdir(parents=True, exist_ok=True)
        init_home(self.home)
        self.port = unused_port()
        self.environment = os.environ | server_environment(self.home, self.port, names)
        self.environment |= {"GRAPHMILL_PIPELINES": str(self.pipelines)} | (env or {})
        self._start(dev_arguments(workspaces, self.port))

    def _start(self, arguments: list[str]) -> None:
        self.log = self.folder / "server.log"
        with open(self.log, "w") as log:
            # In a session of its own: in the background of a script it would ignore SIGINT and SIGTERM.
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        def loaded() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            try:
                found = self.ask("{ workspaceOrError { ... on Workspace { locationEntries { loadStatus } } } }")
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                return False
            entries = found["workspaceOrError"].get("locationEntries", [])
            return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)

        wait_for(loaded, "the web server", 180)

    def stop(self) -> None:
        guard.end_group(
            self.process.pid, lambda: self.process.poll() is not None and not guard.group_members(self.process.pid)
        )

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Sends a GraphQL query or mutation and returns its data."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=240) as reply:
            answer = json.load(reply)
        assert not answer.get("errors"), answer["errors"]
        return answer["data"]

    def reload(self) -> None:
        """Loads the pipeline files again, as the button in the UI does."""
        answer = self.ask(
            "mutation($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) {"
            " __typename ... on WorkspaceLocationEntry { loadStatus locationOrLoadError { __typename } } } }",
            name=LOCATION,
        )["reloadRepositoryLocation"]
        assert answer["locationOrLoadError"]["__typename"] == "RepositoryLocation", answer

    def launch(self, job: str, location: str = LOCATION, **tags: str) -> str:
        """Launches a job as the UI does, and returns the id of the run; `max_retries` stands for the tag `dagster/max_retries`."""
        selector = {
            "repositoryLocationName": location,
            "repositoryName": "__repository__",
            "jobName": job,
        }
        answer = self.ask(
            "mutation($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename"
            " ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }"
            " ... on RunConfigValidationInvalid { errors { message } } } }",
            params={
                "selector": selector,
                "runConfigData": {},
                "executionMetadata": {
                    "tags": [{"key": f"dagster/{name}", "value": value} for name, value in tags.items()]
                },
            },
        )["launchRun"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return answer["run"]["runId"]

    def repeat(self, run_id: str) -> str:
        """Presses *Re-execute from failure* on the page of a run, and returns the id of the new run."""
        answer = self.ask(
            "mutation($params: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $params) { __typename"
            " ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }",
            params={"parentRunId": run_id, "strategy": "FROM_FAILURE"},
        )["launchRunReexecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return answer["run"]["runId"]

    def status(self, run_id: str) -> str:
        return self.ask("query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }", id=run_id)[
            "runOrError"
        ]["status"]

    def wait_for_run(self, run_id: str, expected: str = "SUCCESS", seconds: float = 240) -> None:
        status = wait_for(lambda: (s := self.status(run_id)) in FINISHED and s, f"run {run_id}", seconds)
        assert status == expected, self.failures(run_id)

    def cancel(self, run_id: str) -> None:
        """Cancels a run as the UI does."""
        answer = self.ask(
            "mutation($id: String!) { terminateRun(runId: $id) { __typename ... on PythonError { message } } }",
            id=run_id,
        )["terminateRun"]
        assert answer["__typename"] == "TerminateRunSuccess", answer

    def failures(self, run_id: str) -> list[str]:
        """Returns what the failed steps of a run said."""
        events = self.ask(
            "query($id: ID!) { logsForRun(runId: $id) { ... on EventConnection { events { __typename"
            " ... on ExecutionStepFailureEvent { stepKey error { message } failureMetadata { description } } } } } }",
            id=run_id,
        )["logsForRun"]["events"]
        failed = [event for event in events if event["__typename"] == "ExecutionStepFailureEvent"]
        return [
            f"{event['stepKey']}: {(event['failureMetadata'] or {}).get('description')} {event['error']['message']}"
            for event in failed
        ]

    def assert_sound(self) -> None:
        """Looks at every byte of the store, and for anything that is left half built."""
        store = Store(self.home)
        store.sweep()
        assert not store.damaged() and all(not artifact.verify() for artifact in store.artifacts())
        staging = store.root / ".staging"
        assert not staging.exists() or not [path for path in staging.iterdir() if path.is_dir()]

    def assets(self, pipeline: str) -> dict[str, dict[str, Any]]:
        """Returns name -> staleness, data version and metadata of a pipeline's assets."""
        nodes = self.ask(
            "{ assetNodes { assetKey { path } staleStatus staleCauses { reason key { path } }"
            " assetMaterializations(limit: 1) { runId tags { key value } metadataEntries { label"
            " ... on BoolMetadataEntry { boolValue } } } } }"
        )["assetNodes"]
        found = {}
        for node in nodes:
            group, name = node["assetKey"]["path"]
            if group == pipeline:
                last = (node["assetMaterializations"] or [{}])[0]
                tags = {tag["key"]: tag["value"] for tag in last.get("tags", [])}
                flags = {entry["label"]: entry.get("boolValue") for entry in last.get("metadataEntries", [])}
                found[name] = {
                    "stale": node["staleStatus"],
                    "causes": node["staleCauses"],
                    "version": tags.get("dagster/data_version"),
                    "reused": flags.get("reused"),
                }
        return found

    def unsynced(self, pipeline: str) -> set[str]:
        """Returns the assets of a pipeline that the UI shows as unsynced."""
        return {name for name, asset in self.assets(pipeline).items() if asset["stale"] == "STALE"}


class ProjectServer(Server):
    """The processes of `dagster dev` over a user's own project in a folder, whose `dagster.yaml` has the settings of the instance."""

    def __init__(self, project: Path, package: str):
        self.folder, self.home, self.port = project, project / ".graphmill", unused_port()
        # The daemon looks for failed runs and at freshness more often than every 5 and 30 seconds.
        self.environment = os.environ | {
            "DAGSTER_HOME": str(project),
            "DAGSTER_EVENT_LOG_CONSUMER_DAEMON_INTERVAL_SECONDS": "1",
            "FRESHNESS_DAEMON_INTERVAL_SECONDS": "3",
        }
        self._start(["-m", "dagster", "dev", "-m", package, "-h", "127.0.0.1", "-p", str(self.port)])
