"""Starts Dagster's web server, daemon and code server like `dagster dev`, with the guard before the web server.

    python -m graphmill.jobs.web dev -w workspace.yaml -h 127.0.0.1 -p 3000       everything
    python -m graphmill.jobs.web webserver ...                                    the web server, as the first one starts it
    python -m graphmill.jobs.web daemon ...                                       the daemon, likewise: it waits longer for the history

`dagster dev` starts `python -m dagster_webserver` and `python -m dagster._daemon`, and offers no way to start other programs. So the
function with which it starts its processes is replaced in this process, and in the web server's the function that makes the application.
tests/jobs/web/test_guarded_ui.py sends foreign requests to the real server and looks for the real daemon, and so notices if either is not
called any more.
"""

import sys
from collections.abc import Sequence
from typing import Any

import graphmill.jobs.runs.instance  # noqa: F401
from graphmill.jobs.web.report_page import ReportPages
from graphmill.jobs.web.same_origin import SameOrigin, hosts_of
from graphmill.kernels import environment

PORT_VARIABLE, NAMES_VARIABLE = environment.UI_PORT, environment.UI_NAMES
"""Variables with the web server's port and its further names, separated by blanks."""
OURS = {"dagster_webserver": ["graphmill.jobs.web", "webserver"], "dagster._daemon": ["graphmill.jobs.web", "daemon"]}
"""Module that `dagster dev` starts -> module and word in its place."""


def main(arguments: Sequence[str]) -> None:
    """Runs one of the three until it ends."""
    program, rest = arguments[0], list(arguments[1:])
    run = {"dev": run_dev, "webserver": run_webserver, "daemon": run_daemon}[program]
    run(rest)


def run_dev(arguments: list[str]) -> None:
    """Runs `dagster dev` with this module's web server and daemon in the place of Dagster's."""
    import dagster._cli.dev as found

    dev: Any = found  # a function of it is replaced

    start = dev.open_ipc_subprocess

    def start_guarded(parts: Sequence[str], **options: Any) -> Any:
        python, option, module, *rest = parts
        return start([python, option, *OURS.get(module, [module]), *rest], **options)

    dev.open_ipc_subprocess = start_guarded
    dev.dev_command(args=arguments, prog_name="graphmill ui", auto_envvar_prefix="DAGSTER_CLI_DEV")


def run_webserver(arguments: list[str]) -> None:
    """Runs Dagster's web server with the reports of pipelines, and the guard around both."""
    import dagster_webserver.cli as found

    cli: Any = found  # a function of it is replaced

    make = cli.create_app_from_workspace_process_context
    hosts = hosts_of(
        environment.whole_number(PORT_VARIABLE, "", 1, 65535, "start it by graphmill ui"),
        environment.read(NAMES_VARIABLE).split(),
    )

    def make_guarded(*given: Any, **named: Any) -> Any:
        return SameOrigin(ReportPages(make(*given, **named)), hosts)

    cli.create_app_from_workspace_process_context = make_guarded
    cli.cli(args=arguments, prog_name="graphmill ui", auto_envvar_prefix="DAGSTER_WEBSERVER")


def run_daemon(arguments: list[str]) -> None:
    """Runs Dagster's daemon."""
    from dagster._daemon.cli import cli

    cli(args=arguments, prog_name="graphmill ui", obj={})


if __name__ == "__main__":
    main(sys.argv[1:])
