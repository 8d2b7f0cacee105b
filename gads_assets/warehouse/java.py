"""The Java that Spark needs, and the Delta JARs it loads."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from gads_assets.errors import SetupError

SUPPORTED_JAVA: Final = (17, 21)
INSTALL_JAVA: Final = "install one, for example with `apt-get install openjdk-17-jre-headless`"
USUAL_PLACES: Final = Path("/usr/lib/jvm")


@dataclass(frozen=True, kw_only=True)
class Java:
    home: Path
    major: int


def find_java(environment: Mapping[str, str], *, usual_places: Path = USUAL_PLACES) -> Java:
    """JAVA_HOME if it is set (and then it must fit), else `java` on the PATH, else the usual places."""
    given = environment.get("JAVA_HOME")
    if given:
        java = _java_at(Path(given))
        if java is None or java.major not in SUPPORTED_JAVA:
            found = "has no java" if java is None else f"is Java {java.major}"
            raise SetupError(
                f"JAVA_HOME {given} {found}; Spark needs Java 17 or 21: set it to one of these, or unset it"
            )
        return java
    on_path = shutil.which("java", path=environment.get("PATH"))
    candidates = [Path(on_path).resolve().parent.parent] if on_path else []
    if usual_places.is_dir():
        candidates += sorted(entry for entry in usual_places.iterdir() if not entry.is_symlink())
    for candidate in candidates:
        java = _java_at(candidate)
        if java is not None and java.major in SUPPORTED_JAVA:
            return java
    raise SetupError(f"no Java 17 or 21 was found, and Spark needs one; {INSTALL_JAVA}, or set JAVA_HOME")


def _java_at(home: Path) -> Java | None:
    program = home / "bin" / "java"
    major = _major_version(program) if program.is_file() else None
    return Java(home=home, major=major) if major else None


@cache
def _major_version(program: Path) -> int | None:
    """Asked once a process: commands look for Java at their start and again when they open a session."""
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match else None


def delta_jar_names() -> tuple[str, str]:
    """The two JARs that staging, pointers and reading use; the rest of Delta's dependencies come with Spark."""
    delta = version("delta-spark")
    return f"delta-spark_{_artifact_suffix()}-{delta}.jar", f"delta-storage-{delta}.jar"


def find_jars(*, given: Path | None, kept: Path) -> list[Path]:
    """The Delta JARs from the directory that settings name, or else from where `fetch_jars` keeps them."""
    folder = given or kept
    jars = [folder / name for name in delta_jar_names()]
    missing = [jar.name for jar in jars if not jar.is_file()]
    if not missing:
        return jars
    if given:
        raise SetupError(f"GADS_SPARK_JARS {given} lacks {' and '.join(missing)}; put them there")
    raise SetupError(f"the Delta JARs are not there yet ({' and '.join(missing)}); run `make setup` or `gads setup`")


def fetch_jars(*, java: Java, spark_home: Path, kept: Path) -> None:
    """Resolves the Delta JARs through the Ivy that Spark ships, whole or not at all.

    Ivy runs without Spark and without following dependencies: Delta's own list names a second Hadoop and a second
    log4j, 90 MB that would shadow Spark's.
    """
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".jars-") as scratch_name:
        scratch = Path(scratch_name)
        (scratch / "ivy.xml").write_text(_ivy_file())
        jars = spark_home / "jars"
        class_path = [*jars.glob("ivy-*.jar"), *jars.glob("commons-cli-*.jar")]
        answer = subprocess.run(
            [
                java.home / "bin" / "java",
                *("-cp", os.pathsep.join(map(str, class_path)), "org.apache.ivy.Main"),
                *("-cache", str(scratch / "cache"), "-ivy", str(scratch / "ivy.xml")),
                *("-retrieve", str(scratch / "jars" / "[artifact]-[revision].[ext]")),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode or not all((scratch / "jars" / name).is_file() for name in delta_jar_names()):
            raise SetupError(
                f"the Delta JARs {' and '.join(delta_jar_names())} could not be fetched from Maven Central; "
                "put them into a folder and set GADS_SPARK_JARS to it"
            )
        kept.mkdir(exist_ok=True)
        for name in delta_jar_names():
            (scratch / "jars" / name).replace(kept / name)


def _artifact_suffix() -> str:
    spark = ".".join(version("pyspark").split(".")[:2])
    return f"{spark}_2.13"


def _ivy_file() -> str:
    delta = version("delta-spark")
    artifacts = (f"delta-spark_{_artifact_suffix()}", "delta-storage")
    dependencies = "".join(
        f'<dependency org="io.delta" name="{name}" rev="{delta}" transitive="false" conf="*->default"/>'
        for name in artifacts
    )
    return (
        '<ivy-module version="2.0"><info organisation="gads_assets" module="jars"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
