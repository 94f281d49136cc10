"""The dashboard and the alerts ask for metrics that the daemon has, by the names and labels it gives them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from replica.daemon.config import DaemonConfig
from replica.daemon.fleet import FOR_PEOPLE
from replica.daemon.metrics import Metrics
from replica.errors import (
    AuthenticationError,
    ConfigError,
    DataLossError,
    DisconnectedError,
    DuplicateServerIdError,
    InstallationError,
    OutOfOrderGtidError,
    PositionLostError,
    PrerequisiteError,
    ProtocolError,
    RelayError,
    ReplicaError,
    SchemaError,
    ServerError,
    StatementDmlError,
    StorageError,
)
from replica.live.progress import AckLatency
from tests.kit.some import some
from tests.unit.daemon.records import record

PACKAGING = Path(__file__).resolve().parents[3] / "replica" / "packaging"
DASHBOARD = json.loads((PACKAGING / "grafana-dashboard.json").read_text())
UNIT = (PACKAGING / "mariadb-replica.service").read_text()
TEMPLATE = (PACKAGING / "mariadb-replica@.service").read_text()
FLEET = (PACKAGING / "mariadb-replica-fleet.service").read_text()
NAME = re.compile(r"\b(mariadb_replica_\w+|process_\w+)")
OF_PROMETHEUS = {"job", "instance"}


def offered() -> dict[str, set[str]]:
    text = Metrics(lambda: record(cluster="shop"), AckLatency()).text().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found: dict[str, set[str]] = {sample.name: OF_PROMETHEUS for sample in samples}
    for sample in samples:
        found[sample.name] = found[sample.name] | set(sample.labels)
    return found


def targets() -> list[dict[str, str]]:
    """Queries of panels, without those of the mirror: tests/unit/streaming_source/mirroring/control/test_metrics.py."""
    listed = [target for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    return [one for one in listed if "_AccumulatorSource_mirror_" not in one["expr"]]


def expressions() -> list[str]:
    panels = [one["expr"] for one in targets()]
    variables = [one["definition"] for one in DASHBOARD["templating"]["list"] if "definition" in one]
    notes = [one["expr"] for one in DASHBOARD["annotations"]["list"] if "expr" in one]
    alerts = re.findall(r"^ +expr: (.*)$", (PACKAGING / "prometheus-alerts.yml").read_text(), re.MULTILINE)
    assert len(panels) > 20
    assert len(alerts) > 5
    return [*panels, *variables, *notes, *alerts]


@pytest.mark.parametrize("expression", expressions())
def test_every_name_and_label_is_one_of_the_daemons(expression: str) -> None:
    known = offered()
    names = NAME.findall(expression)
    assert names or expression.startswith("up{")
    assert [name for name in names if name not in known] == []
    labels = {label for name in names for label in known[name]}
    by = re.findall(r"\bby \(([^)]*)\)", expression)
    used = {label.strip() for part in by for label in part.split(",")}
    used |= set(re.findall(r"[{,]\s*(\w+)\s*(?:=~|=|!=|!~)", expression))
    assert used <= labels | OF_PROMETHEUS


def test_legends_name_labels_that_there_are() -> None:
    known = {label for labels in offered().values() for label in labels}
    legends = [target["legendFormat"] for target in targets()]
    assert set(some(re.findall(r"{{(\w+)}}", " ".join(legends)))) <= known


def test_the_name_of_the_cluster_chooses_daemons_and_is_in_every_alert() -> None:
    chosen = [one for one in expressions() if '$job"' in one and not one.startswith("label_values(")]
    assert len(chosen) > 20
    assert [one for one in chosen if one.count('cluster=~"$cluster"') != one.count('job=~"$job"')] == []
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "cluster", "instance"]
    # `.*` matches the daemons without a name too: they have no such label.
    assert (variables["cluster"]["allValue"], variables["cluster"]["includeAll"]) == (".*", True)
    assert 'cluster=~"$cluster"' in variables["instance"]["definition"]
    alerts = (PACKAGING / "prometheus-alerts.yml").read_text()
    named = "{{ $labels.instance }}{{ with $labels.cluster }} ({{ . }}){{ end }}"
    assert alerts.count(named) == alerts.count("$labels.instance") == alerts.count("- alert:")


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_every_metric_of_the_daemon_is_on_the_dashboard_or_in_an_alert_or_plain() -> None:
    shown = {name for expression in expressions() for name in NAME.findall(expression)}
    ours = {name for name in offered() if name.startswith("mariadb_replica_")}
    series_of_histogram = {"mariadb_replica_ack_latency_seconds_count", "mariadb_replica_ack_latency_seconds_sum"}
    plain = {
        "mariadb_replica_connections_total", "mariadb_replica_heartbeats_total",
        "mariadb_replica_last_receipt_time_seconds",
        "mariadb_replica_position_time_seconds", "mariadb_replica_primary_answer_time_seconds",
        "mariadb_replica_primary_info", "mariadb_replica_primary_semi_sync_clients", "mariadb_replica_readers",
        "mariadb_replica_reader_seen_time_seconds", "mariadb_replica_relay_files",
        "mariadb_replica_relay_removed_bytes_total", "mariadb_replica_sequence", "mariadb_replica_failed_turns_total",
    }  # fmt: skip
    assert ours - shown == plain | series_of_histogram


@pytest.mark.parametrize("unit", [UNIT, TEMPLATE], ids=["unit", "template"])
def test_the_unit_names_options_that_there_are(unit: str) -> None:
    for variable in some(re.findall(r"MARIADB_REPLICA_(\w+)=", unit)):
        assert variable.lower() in DaemonConfig.model_fields


MENDED_BY_PEOPLE_ONLY = (
    ConfigError, PrerequisiteError, InstallationError, AuthenticationError, PositionLostError, DuplicateServerIdError,
    OutOfOrderGtidError,
)  # fmt: skip
MAY_MEND_ITSELF = (ReplicaError, ServerError, DisconnectedError, ProtocolError, RelayError)
"""A bug that some event brings about, a server that is not itself yet, damage on the way, another process, a disk."""
NOT_OF_THE_DAEMON = (SchemaError, StatementDmlError, StorageError, DataLossError)


def every_exit_code(kind: type[ReplicaError] = ReplicaError) -> set[int]:
    return {kind.exit_code}.union(*(every_exit_code(one) for one in kind.__subclasses__()))


def test_the_unit_does_not_start_again_what_only_people_mend_and_waits_longer_and_longer_with_the_rest() -> None:
    prevented = re.search(r"^RestartPreventExitStatus=(.*)$", UNIT, re.MULTILINE)
    assert prevented is not None
    assert [int(code) for code in prevented[1].split()] == [kind.exit_code for kind in MENDED_BY_PEOPLE_ONLY]
    decided = {kind.exit_code for kind in (*MENDED_BY_PEOPLE_ONLY, *MAY_MEND_ITSELF, *NOT_OF_THE_DAEMON)}
    assert every_exit_code() == decided, "a new exit code has to be decided about, here and in the unit"
    assert "RestartSteps=6\nRestartMaxDelaySec=1min\n" in UNIT
    page = (PACKAGING.parents[1] / "docs" / "daemon.md").read_text(encoding="utf-8")
    assert f"After the exit codes {', '.join(prevented[1].split()[:-1])} and 34" in page


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("text", [UNIT, FLEET], ids=["one", "fleet"])
def test_systemd_accepts_the_unit(tmp_path: Path, text: str) -> None:
    unit = tmp_path / "mariadb-replica.service"
    unit.write_text(text.replace("/opt/mariadb-replica/bin/mariadb-replica", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    newer = re.compile(r"Unknown key( name)? '(RestartSteps|RestartMaxDelaySec)'.*, ignoring")  # systemd before 254
    said = [line for line in done.stderr.splitlines() if unit.name in line and not newer.search(line)]
    assert (done.returncode, said) == (0, [])


def settings(unit: str) -> list[str]:
    return [line for line in unit.splitlines() if line and not line.startswith("#")]


def test_the_fleets_unit_is_that_of_one_daemon_but_for_files_and_memory() -> None:
    different = set(settings(UNIT)) ^ set(settings(FLEET))
    names = {line.partition("=")[0] for line in different}
    assert names <= {"Description", "ExecStart", "ExecReload", "LoadCredential", "Environment", "MemoryMax"}
    assert {line for line in different if line.startswith("Environment=")} <= {
        "Environment=MARIADB_REPLICA_PASSWORD_FILE=%d/password"
    }


def test_the_fleet_starts_none_again_that_the_unit_does_not() -> None:
    assert {kind.exit_code for kind in MENDED_BY_PEOPLE_ONLY} == FOR_PEOPLE


def test_the_template_differs_from_the_unit_in_names_only() -> None:
    template = settings(TEMPLATE)
    template.remove("Environment=MARIADB_REPLICA_CLUSTER=%i")  # many daemons are told apart by a name
    different = {(one, other) for one, other in zip(settings(UNIT), template, strict=True) if one != other}
    assert {one.partition("=")[0] for one, _ in different} == {
        "Description",
        "ExecStart",
        "LoadCredential",
        "StateDirectory",
    }
    for one, other in different:
        plain = other.replace(" of %i", "").replace("/%i.toml", "/replica.toml").replace("%i.password", "password")
        assert plain.removesuffix("/%i") == one
