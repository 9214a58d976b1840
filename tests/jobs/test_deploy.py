"""The files of deploy/: what they name exists, and the installed packages take them."""

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from graphmill.assets.cluster.address import parse_address
from graphmill.assets.storage.names.home import STORE_VARIABLE, VARIABLE
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.machine.ui import ADDRESS
from graphmill.jobs.web.healthy import LOCK
from graphmill.kernels._native import LEVELS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def test_the_values_start_the_code_server_of_this_tree():
    values = yaml.safe_load((DEPLOY / "values.yaml").read_text())
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    arguments = dict(zip(*[iter(deployment["dagsterApiGrpcArgs"])] * 2, strict=True))
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"][0]["python_file"]
    assert deployment["name"] == workspace["location_name"], "runs of the command line are listed under this name"
    assert arguments == {
        "--module-name": f"graphmill.{workspace['relative_path'].removesuffix('.py').replace('/', '.')}"
    }
    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    for place in (deployment, launcher):
        assert [each["name"] for each in place["volumes"]] == [each["name"] for each in place["volumeMounts"]]
    environment = {each["name"]: each["value"] for each in deployment["env"]}
    assert environment[STORE_VARIABLE] == "", "runs share the volume unless an object store is named"
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
    """A wheel has no build for the machine at hand: other nodes may lack its instructions."""
    build = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")[1]
    assert "pip wheel" in build and 'pip install --no-cache-dir -c constraints.txt "$(ls dist/*.whl)[' in build
    of_wheels = (ROOT / "CMakeLists.txt").read_text().partition("set(WHEEL TRUE)")[2].partition("else()")[0]
    assert set(LEVELS) == set(re.findall(r"x86-64-v\d", of_wheels)) and "native" not in of_wheels


def test_the_page_runs_the_image_where_its_ui_can_be_reached():
    """The UI listens on the loopback address, which is the container's own unless it shares the host's network."""
    assert '"ui"' in re.findall(r"^CMD (.+)$", (DEPLOY / "Dockerfile").read_text(), re.M)[-1]
    assert ADDRESS == "127.0.0.1"
    page = (ROOT / "docs" / "deployment.md").read_text()
    runs = re.findall(r"^docker run .*graphmill$", page, re.M)
    assert runs and all("--network host" in line for line in runs)
    for place in ("/home/graphmill/data", "/pipelines"):
        assert all(f":{place}" in line for line in runs)


def test_the_image_takes_an_extra_for_cuda():
    """The words that a shell makes of the line that installs the package, without the extra and with each."""
    build = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")[1]
    default = re.search(r"^ARG CUDA_EXTRA=(.*)$", build, re.M)
    install = re.search(r'constraints.txt (".*?\]") ', build.replace("\\\n", " "))
    assert default and install and default[1] == "" and default.start() < install.start()
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    always = ["postgres", "ray", "object-store"]
    for given, extras in (("", always), ("cuda12", [*always, "cuda12"]), ("cuda13", [*always, "cuda13"])):
        command = f'ls() {{ echo the.whl; }}; CUDA_EXTRA={given}; printf "%s\\n" {install[1]}'
        shown = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.splitlines()
        assert shown == [f"the.whl[{','.join(extras)}]"] and {*extras} <= known.keys()


def ray_cluster() -> dict:
    return yaml.safe_load((DEPLOY / "raycluster.yaml").read_text())


def ray_groups() -> dict[str, dict]:
    """The head's group and each group of workers, by the name of the container."""
    spec = ray_cluster()["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return {group["template"]["spec"]["containers"][0]["name"]: group for group in groups}


def test_the_ray_cluster_has_the_fields_of_kuberay():
    """Their names and types as Ray's documentation of RayCluster shows them; its schema is not at hand."""
    cluster, groups = ray_cluster(), ray_groups()
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert set(cluster["spec"]) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    assert set(groups["ray-head"]) == {"serviceType", "rayStartParams", "template"}
    workers = groups["ray-worker"]
    assert set(workers) == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    for group in groups.values():
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        # KubeRay gives Ray the cores and the memory of the limits.
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert {each["name"] for each in pod["volumes"]} == {each["name"] for each in container["volumeMounts"]}


def test_the_ray_cluster_starts_ray_as_the_installed_one_does():
    pytest.importorskip("ray")
    from ray.scripts.scripts import start

    known = {option.removeprefix("--") for parameter in start.params for option in parameter.opts}
    for group in ray_groups().values():
        given = group["rayStartParams"]
        assert given.keys() <= known and all(isinstance(value, str) for value in given.values())
    ports = {each["name"]: each["containerPort"] for each in _container("ray-head")["ports"]}
    options = {parameter.name: parameter for parameter in start.params}
    help_of = {name: f"{options[name].help} {options[name].default}" for name in ("port", "ray_client_server_port")}
    assert str(ports["gcs-server"]) in help_of["port"] and str(ports["client"]) in help_of["ray_client_server_port"]
    assert ports["dashboard"] == options["dashboard_port"].default
    pinned = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert ray_cluster()["spec"]["rayVersion"] == (pinned[1] if pinned else importlib.metadata.version("ray"))


def _container(name: str) -> dict:
    return ray_groups()[name]["template"]["spec"]["containers"][0]


def test_the_ray_cluster_has_the_variables_that_the_code_reads():
    head, worker = _container("ray-head"), _container("ray-worker")
    assert head["env"] == worker["env"] and head["volumeMounts"] == worker["volumeMounts"]
    names = {each["name"] for each in head["env"]}
    assert {VARIABLE, STORE_VARIABLE, "GRAPHMILL_PIPELINES"} <= names
    # Those of obstore, which reads its usual variables.
    aws = {"AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    assert names == {VARIABLE, STORE_VARIABLE, "GRAPHMILL_PIPELINES"} | aws
    values = {each["name"]: each.get("value") for each in head["env"]}
    assert values[STORE_VARIABLE].startswith("s3://")
    assert [name for name, value in values.items() if value is None] == ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    mounted = {each["mountPath"] for each in head["volumeMounts"]}
    assert {values[VARIABLE], values["GRAPHMILL_PIPELINES"]} == mounted


def test_the_image_has_what_kuberay_asks_of_it():
    """Its probes run wget against the dashboard's agent, which ray[default] brings."""
    built, image = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")[1:]
    assert '"ray[default]"' in built and " wget " in image
    values = yaml.safe_load((DEPLOY / "values.yaml").read_text())
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    named = f"{deployment['image']['repository']}:{deployment['image']['tag']}"
    assert {_container(name)["image"] for name in ("ray-head", "ray-worker")} == {named}


def test_runs_of_the_chart_reach_the_ray_cluster():
    """KubeRay names the head's service after the cluster; the port is that of Ray's client server."""
    name = ray_cluster()["metadata"]["name"]
    address = f"ray://{name}-head-svc:10001"
    assert parse_address(address).place == (f"{name}-head-svc", 10001)
    texts = [(DEPLOY / "values.yaml").read_text(), (DEPLOY / "raycluster.yaml").read_text()]
    texts.append((ROOT / "docs" / "scaling.md").read_text())
    assert all(address in text for text in texts)
    commands = re.findall(r"-- (graphmill .*)$", texts[1], re.M)
    assert commands == ["graphmill run PIPELINE --on auto"]
    graphmill.commands["run"].make_context("run", commands[0].split()[2:])
    secret = {
        each["valueFrom"]["secretKeyRef"]["name"] for each in _container("ray-head")["env"] if "valueFrom" in each
    }
    assert secret == {"graphmill-store"}
    for text in (texts[0], (DEPLOY / "dagster.yaml").read_text()):
        assert "graphmill-store" in text


class _Answering(BaseHTTPRequestHandler):
    """Answers as the UI does to the health check, and to nothing else."""

    def do_GET(self):
        self.send_response(200 if self.path == "/server_info" else 404)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_the_health_check_asks_the_address_in_the_lock(tmp_path):
    text = (DEPLOY / "Dockerfile").read_text()
    (listed,) = re.findall(r"^HEALTHCHECK (?:--\S+ )+\\\n  CMD (\[.*\])$", text, re.M)
    program, *rest = json.loads(listed)
    assert program == "python"

    def healthy():
        env = {"GRAPHMILL_HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, *rest], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
        return done.returncode == 0

    assert not healthy(), "no UI was started"
    server = HTTPServer((ADDRESS, 0), _Answering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    # The UI pads its address, so that a shorter one leaves nothing of a longer one.
    (tmp_path / LOCK).write_text(f"http://{ADDRESS}:{server.server_port}".ljust(64))
    try:
        assert healthy()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert not healthy(), "the UI has ended"


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
    with_secrets = given | {"env_secrets": ["graphmill-store"]} if package == "dagster_k8s" else given
    for each in (given, with_secrets):
        result = process_config(schema, each)
        assert result.success, result.errors


def test_the_settings_are_taken_by_dagster(monkeypatch):
    """All but the two classes of packages that may be absent."""
    monkeypatch.setenv("GRAPHMILL_POSTGRES_URL", "postgresql://localhost/graphmill")
    from dagster._config import process_config
    from dagster._core.instance.config import dagster_instance_config_schema

    settings = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    assert process_config(dagster_instance_config_schema(), settings).success
