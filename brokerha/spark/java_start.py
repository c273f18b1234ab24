"""What makes the JVM of a session start fast: options for compiling, and the archive of classes (class data sharing).

    first start     loads 17,000 classes from jars, and keeps them in a file when it ends: classes-KEY.PID.new
    next start      finds that file complete, gives it its name, classes-KEY.jsa, and each start maps it from then on

The key is made of the versions of Spark and Java and of where they lie, because the archive only fits the jars that it was made of. A JVM ignores an archive that does not fit it. A
file that a kill cut off has no head, because the JVM writes the head last: it is never given the name. Runtimes without an archive of
Java's own classes, which the other one builds on, get that one made first (about a second, once).

Methods that run often are compiled later by the slow compiler than is usual: jobs of a minute are over before the usual choice has paid.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import time
from pathlib import Path

from brokerha.spark.java import Runtime

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
            subprocess.run(command, capture_output=True, timeout=_BASE_WITHIN_S, check=True)  # noqa: S603  (see java.py)
            partial.rename(base)
        except (OSError, subprocess.SubprocessError):
            partial.unlink(missing_ok=True)
            return None
    return (base,)
