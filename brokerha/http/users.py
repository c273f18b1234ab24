"""Users of an HTTP door, their roles, passwords and tokens, and addresses that failed too often.

A users file is TOML, one table for each user:

    [users.app]
    role = "write"                            # none < read < write < admin
    repositories = { books = "read" }         # in these repositories this role instead
    tables = { prices = "write" }             # the same of key-value tables
    queues = { jobs = "none" }                # the same of queues
    graphs = { drafts = { "urn:a" = "read", default = "write" } }   # more in single graphs of a repository
    password = "scrypt$<salt>$<hash>"         # for Basic; both in hexadecimal digits
    tokens = [{ sha256 = "<digest>", expires = 1790000000 }]   # for Bearer; expires in seconds of the wall clock

Only `UsersFile` reads a clock and a file; the rest gets text and time. Must never keep or log a password or token as it was sent.
Of a verified password it remembers an HMAC under a key of this process, so that scrypt runs once and not for each request.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
import tomllib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from brokerha.http.replaced import Replaced
from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import is_repository_id
from brokerha.model.operation_checks import GRAPH, QUEUE, TABLE, USER_LIMIT_BYTES, name_problem, user_problem
from brokerha.stores.sparql.targets import is_name

NONE, READ, WRITE, ADMIN = "none", "read", "write", "admin"
ROLES = (NONE, READ, WRITE, ADMIN)
"""Each role includes the ones before it; the first is for users with roles only in single stores."""
Store = tuple[str, str]
"""A kind (`GRAPH`, `TABLE`, `QUEUE`) and a name; the graph of that kind is a repository."""
STORES: Final = {"repositories": GRAPH, "tables": TABLE, "queues": QUEUE}
"""Words of the file, and the kind of store of each."""
GRAPHS: Final = "graphs"
ROLES_OF_GRAPHS = (READ, WRITE)
STORES_LIMIT = 1000
"""Most stores of each kind, and most graphs."""
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**14, 8, 1
SCRYPT_MEMORY_BYTES = 32 * 1024 * 1024
SECRET_LIMIT = 1024
"""Most characters of a password or token; longer ones are wrong without a check."""
VERIFIED_LIMIT = 1024
FAILURES_LIMIT = 10
FAILURES_WINDOW_S = 60.0
ADDRESSES_LIMIT = 4096
_NOBODY = "scrypt$" + "00" * 16 + "$" + "00" * 32


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a user, as its digest."""

    sha256: str
    expires_s: float


@dataclass(frozen=True, slots=True)
class User:
    """One user of the file."""

    name: str
    role: str
    """For everything but the named stores."""
    password: str = ""
    tokens: tuple[Token, ...] = ()
    stores: dict[Store, str] = field(default_factory=dict)
    """The role in each named store."""
    graphs: dict[tuple[str, str], str] = field(default_factory=dict)
    """The role in each graph, by repository and name of the graph (`targets.name_of`), beside the role in the repository."""

    def role_in(self, store: Store | None) -> str:
        """Return the role in a store; None for everything else."""
        return self.role if store is None else self.stores.get(store, self.role)

    def may(self, role: str, store: Store | None = None) -> bool:
        """Tell whether this user has this role, or a higher one, there."""
        return ROLES.index(self.role_in(store)) >= ROLES.index(role)

    def may_somewhere(self, role: str) -> bool:
        """Tell whether this user has this role, or a higher one, anywhere."""
        held = (self.role, *self.stores.values(), *self.graphs.values())
        return any(ROLES.index(each) >= ROLES.index(role) for each in held)

    def may_enter(self, role: str, store: Store | None) -> bool:
        """Tell whether this user has this role there, or in a graph there."""
        return self.may(role, store) or (store is not None and store[0] == GRAPH and bool(self.graphs_in(store[1], role)))

    def graphs_in(self, repository: str, role: str = READ) -> dict[str, str]:
        """Return the role in each single graph of a repository in which it is this or a higher one."""
        least = ROLES.index(role)
        return {graph: held for (of, graph), held in self.graphs.items() if of == repository and ROLES.index(held) >= least}


def hash_password(password: str, salt: bytes | None = None) -> str:
    """Return a password in the form of the users file."""
    salt = secrets.token_bytes(16) if salt is None else salt
    return f"scrypt${salt.hex()}${_scrypt(password, salt).hex()}"


def hash_token(token: str) -> str:
    """Return a token in the form of the users file."""
    return hashlib.sha256(token.encode()).hexdigest()


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, maxmem=SCRYPT_MEMORY_BYTES, dklen=32)


def parse_users(text: str, path: str) -> dict[str, User]:
    """Parse the users of a file, by name. Raises ConfigurationError with the problem, never with a value of the file."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise ConfigurationError(f"{path}: this is no TOML: write it with brokerha's own words for users") from None
    users = tables.pop("users", {})
    if tables or not isinstance(users, dict) or not users:
        raise ConfigurationError(f"{path}: a users file has tables [users.NAME] and nothing else")
    return {name: _user(name, table, path) for name, table in users.items()}


def _user(name: str, table: object, path: str) -> User:
    if not isinstance(table, dict) or set(table) - {"role", *STORES, GRAPHS, "password", "tokens"}:
        raise ConfigurationError(
            f"{path}: user {name} has role, {', '.join(STORES)}, {GRAPHS}, password and tokens, and nothing else"
        )
    if table.get("role") not in ROLES:
        raise ConfigurationError(f"{path}: user {name} has no role: write one of {', '.join(ROLES)}")
    stores: dict[Store, str] = {}
    for word, kind in STORES.items():
        rights = table.get(word, {})
        if (
            not isinstance(rights, dict)
            or len(rights) > STORES_LIMIT
            or not all(is_right(kind, *right) for right in rights.items())
        ):
            raise ConfigurationError(f'{path}: {word} of user {name} are names with a role each: {{ books = "write" }}')
        stores |= {(kind, store): role for store, role in rights.items()}
    password, tokens = table.get("password", ""), table.get("tokens", [])
    if not isinstance(password, str) or (password and not _is_hash(password)):
        raise ConfigurationError(f"{path}: the password of user {name} is not hashed: scrypt$SALT$HASH, in hexadecimal")
    if not isinstance(tokens, list) or not all(_is_token(token) for token in tokens):
        raise ConfigurationError(f"{path}: a token of user {name} has a sha256 of 64 digits and the second it expires at")
    if ":" in name or user_problem(name):
        raise ConfigurationError(f"{path}: a user's name has 1 to {USER_LIMIT_BYTES} printable bytes and no colon")
    held = tuple(Token(one["sha256"], one["expires"]) for one in tokens)
    return User(name, table["role"], password, held, stores, _graphs(name, table.get(GRAPHS, {}), path))


def _graphs(name: str, table: Any, path: str) -> dict[tuple[str, str], str]:
    is_nested = isinstance(table, dict) and all(isinstance(rights, dict) for rights in table.values())
    tables: dict[str, dict[str, str]] = table if is_nested else {}
    graphs = {(repository, graph): role for repository, rights in tables.items() for graph, role in rights.items()}
    if not is_nested or len(graphs) > STORES_LIMIT or not all(is_right_in_graph(*key, role) for key, role in graphs.items()):
        raise ConfigurationError(
            f'{path}: {GRAPHS} of user {name} are read or write, by repository and IRI (or default): {{ books = {{ "urn:a" = "read" }} }}'
        )
    return graphs


def is_right_in_graph(repository: str, graph: str, role: object) -> bool:
    """Tell whether this role can be given for a graph of that name."""
    return role in ROLES_OF_GRAPHS and is_repository_id(repository) and is_name(graph)


def is_right(kind: str, name: str, role: object) -> bool:
    """Tell whether this role can be given for a store of that name."""
    return role in ROLES and (is_repository_id(name) if kind == GRAPH else not name_problem(kind, name))


def _is_hash(text: str) -> bool:
    parts = text.split("$")
    return len(parts) == 3 and parts[0] == "scrypt" and _is_hex(parts[1], 16) and _is_hex(parts[2], 32)


def _is_hex(text: str, size: int) -> bool:
    try:
        return len(bytes.fromhex(text)) == size
    except ValueError:
        return False


def _is_token(token: object) -> bool:
    if not isinstance(token, dict) or set(token) != {"sha256", "expires"}:
        return False
    digest, expires = token["sha256"], token["expires"]
    is_time = isinstance(expires, (int, float)) and not isinstance(expires, bool)
    return isinstance(digest, str) and _is_hex(digest, 32) and is_time


class Users:
    """The users of one version of the file; a changed file makes a new object, and so forgets verified passwords."""

    def __init__(self, users: dict[str, User]) -> None:
        self._users = users
        self._tokens = {token.sha256.lower(): (user, token) for user in users.values() for token in user.tokens}
        self._verified: OrderedDict[bytes, None] = OrderedDict()
        self._key = secrets.token_bytes(32)

    def by_token(self, token: str, now_s: float) -> User | None:
        """Return the owner of an unexpired token. The lookup is by its digest, which an attacker cannot steer."""
        if len(token) > SECRET_LIMIT:
            return None
        user, found = self._tokens.get(hash_token(token), (None, None))
        return user if found is not None and now_s < found.expires_s else None

    def is_verified(self, name: str, password: str) -> User | None:
        """Return the user if the password was verified before; costs next to nothing."""
        return self._users.get(name) if self._mark(name, password) in self._verified else None

    def by_password(self, name: str, password: str) -> User | None:
        """Return the user of a password; takes scrypt's time, even for an unknown name. Raises nothing."""
        if len(password) > SECRET_LIMIT:
            return None
        user = self._users.get(name)
        _, salt, digest = (user.password if user is not None and user.password else _NOBODY).split("$")
        is_right = hmac.compare_digest(_scrypt(password, bytes.fromhex(salt)), bytes.fromhex(digest))
        if user is None or not user.password or not is_right:
            return None
        self._verified[self._mark(name, password)] = None
        while len(self._verified) > VERIFIED_LIMIT:
            self._verified.popitem(last=False)
        return user

    def _mark(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{len(name)}:{name}:{password}".encode(), "sha256")


class Failures:
    """Recent failed logins of each address; bounded, the oldest is forgotten first."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_s(self, address: str, now_s: float) -> int:
        """Return the seconds until this address can try again; 0 for now."""
        since_s, count = self._by_address.get(address, (now_s, 0))
        left_s = since_s + FAILURES_WINDOW_S - now_s
        return max(1, round(left_s)) if count >= FAILURES_LIMIT and left_s > 0 else 0

    def failed(self, address: str, now_s: float) -> None:
        """Count one more failure."""
        since_s, count = self._by_address.pop(address, (now_s, 0))
        if now_s >= since_s + FAILURES_WINDOW_S:
            since_s, count = now_s, 0
        self._by_address[address] = since_s, count + 1
        while len(self._by_address) > ADDRESSES_LIMIT:
            self._by_address.popitem(last=False)

    def take_back(self, address: str) -> None:
        """Take one failure back; the failures before it stay."""
        since_s, count = self._by_address.get(address, (0.0, 0))
        if count:
            self._by_address[address] = since_s, count - 1


class UsersFile:
    """The users file of a door; calling it returns the present users."""

    def __init__(self, path: Path, mono_s: Callable[[], float] = time.monotonic) -> None:
        """Read the file. Raises ConfigurationError."""
        self._path = path
        self._current = Replaced("users", (path,), self._read, mono_s)

    def __call__(self) -> Users:
        """Return the present users."""
        return self._current()

    def _read(self) -> Users:
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"http-users = {self._path}: cannot be read ({reason}): brokerha user add makes it") from None
        return Users(parse_users(text, str(self._path)))
