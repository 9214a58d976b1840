"""The files of deploy/: what they name exists, and the installed packages take them."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from jobs.commands.ui import ADDRESS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def test_the_values_start_the_code_server_of_this_tree():
    values = yaml.safe_load((DEPLOY / "values.yaml").read_text())
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    arguments = dict(zip(*[iter(deployment["dagsterApiGrpcArgs"])] * 2, strict=True))
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"][0]["python_file"]
    assert deployment["name"] == workspace["location_name"], "runs of the command line are listed under this name"
    assert arguments == {
        "--python-file": f"/srv/graphmill/{workspace['relative_path']}",
        "--working-directory": "/srv/graphmill",
    }
    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    for place in (deployment, launcher):
        assert [each["name"] for each in place["volumes"]] == [each["name"] for each in place["volumeMounts"]]
    environment = {each["name"]: each["value"] for each in deployment["env"]}
    mounted = {each["mountPath"] for each in deployment["volumeMounts"]}
    assert {environment["GRAPHMILL_HOME"], environment["GRAPHMILL_PIPELINES"]} == mounted


def test_the_image_copies_what_there_is():
    text = (DEPLOY / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+)$", text, re.M):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()} - {"tests", "benchmarks"}
    assert packages <= set(re.findall(r"^COPY (\w+) ", text, re.M))


def test_the_image_is_built_for_processors_other_than_the_builders():
    """setup.py builds for the machine at hand unless `GRAPHMILL_MARCH` is set; other nodes may lack its instructions."""
    assert 'os.environ.get("GRAPHMILL_MARCH", "native")' in (ROOT / "setup.py").read_text()
    build = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")[1]
    default = re.search(r"^ARG GRAPHMILL_MARCH=(\S+)$", build, re.M)
    handed_on = re.search(r"^ENV (?:.* )?GRAPHMILL_MARCH=\$GRAPHMILL_MARCH\b", build, re.M)
    assert default and default[1] != "native" and handed_on
    assert default.start() < handed_on.start() < build.index('-e ".')


def test_the_page_runs_the_image_where_its_ui_can_be_reached():
    """The UI listens on the loopback address, which is the container's own unless it shares the host's network."""
    assert '"ui"' in re.findall(r"^CMD (.+)$", (DEPLOY / "Dockerfile").read_text(), re.M)[-1]
    assert ADDRESS == "127.0.0.1"
    page = (ROOT / "docs" / "deployment.md").read_text()
    runs = re.findall(r"^docker run .*graphmill$", page, re.M)
    assert runs and all("--network host" in line for line in runs)
    for place in ("/home/graphmill/data", "/pipelines"):
        assert all(f":{place}" in line for line in runs)


def test_no_secret_stands_in_them():
    for path in DEPLOY.iterdir():
        assert not re.search(r"(?i)(password|token|secret)\s*[:=]\s*\S", path.read_text()), path


@pytest.mark.parametrize("package", ["dagster_postgres", "dagster_k8s"])
def test_the_settings_are_taken_by_the_installed_packages(package, monkeypatch):
    monkeypatch.setenv("GRAPHMILL_POSTGRES_URL", "postgresql://localhost/graphmill")
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: deploy/dagster.yaml was not tried against it")
    from dagster._config import process_config

    settings = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    if package == "dagster_k8s":
        from dagster_k8s import K8sRunLauncher

        schema, given = K8sRunLauncher.config_type(), settings["run_launcher"]["config"]
    else:
        from dagster_postgres import DagsterPostgresStorage

        schema, given = DagsterPostgresStorage.config_type(), settings["storage"]["postgres"]
    result = process_config(schema, given)
    assert result.success, result.errors


def test_the_settings_are_taken_by_dagster(monkeypatch):
    """All but the two classes of packages that may be absent."""
    monkeypatch.setenv("GRAPHMILL_POSTGRES_URL", "postgresql://localhost/graphmill")
    from dagster._config import process_config
    from dagster._core.instance.config import dagster_instance_config_schema

    settings = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    assert process_config(dagster_instance_config_schema(), settings).success
