"""Mutations of what a statement reads or does: names of the bait in place of its own."""

from __future__ import annotations

import re
from random import Random

from ingero_mcp.views import PRIVATE as SCHEMA
from tests.sqlguard.fuzz.bait import FILE, OUT, PRIVATE
from tests.sqlguard.fuzz.tokens import is_word, tokens

TABLES = (
    *("vault", '"vault"', "VAULT", "main.vault", *PRIVATE, *map(str.upper, PRIVATE), '"\u212a"'),
    *(f"{SCHEMA}.batches", "duckdb_tables", "duckdb_databases", "information_schema.tables", "sqlite_master"),
    *(f"'{FILE}'", f'"{FILE}"', FILE, f"read_csv('{FILE}')", f"read_text('{FILE}')", f"'{FILE[:-1]}?'"),
    *("glob('*')", "query('FROM vault')", "query_table('vault')", "duckdb_settings()", "pragma_database_list"),
    *("'/proc/self/environ'", "read_text('/proc/self/environ')", "histogram(vault, token)", f"sniff_csv('{FILE}')"),
    *("(SHOW ALL TABLES)", "(DESCRIBE vault)", "(SUMMARIZE vault)", "owned.tables()", "seq_scan(vault)"),
    *("force_checkpoint()", "enable_logging()", "unnest((SELECT list(token) FROM vault))", "(VALUES (leak()))"),
)
VALUES = (
    *("(SELECT token FROM vault)", "(SELECT max(x) FROM k)", "(FROM vault)", "leak()", "(SELECT count(*) FROM vault)"),
    *(
        "current_setting('temp_directory')",
        "current_database()",
        "current_catalog",
        "current_query()",
        "getvariable('x')",
    ),
    *(f"read_text('{FILE}')", "EXISTS (FROM vault)", "'x'::mood", "enum_range(NULL::mood)", "version()"),
    *("nextval('s')", "write_log('x')", "json_execute_serialized_sql(json_serialize_sql('FROM vault'))", "COLUMNS(*)"),
    *("list_aggregate([1], 'max')", "vault.token", "main.vault.token", "events", "repeat('x', 2000000000)"),
)
EFFECTS = (
    *("DELETE FROM vault", "DROP TABLE vault", "UPDATE vault SET token = 'x'", "CREATE TABLE made AS SELECT 1 AS x"),
    *(f"COPY vault TO '{OUT}/x.csv'", f"ATTACH '{OUT}/x.db' AS x", f"EXPORT DATABASE '{OUT}/all'", "SET threads = 3"),
    *("INSERT INTO vault VALUES ('x', 'y')", "TRUNCATE vault", "ATTACH ':memory:' AS m", "RESET threads", "CHECKPOINT"),
    *(
        "BEGIN TRANSACTION",
        "COMMIT",
        "ROLLBACK",
        "SET VARIABLE x = 1",
        "PREPARE p AS FROM vault",
        "CALL enable_logging()",
    ),
    *("CREATE TEMP VIEW events AS FROM vault", "SET default_null_order = 'nulls_first'", "PRAGMA enable_profiling"),
    *(
        "DELETE FROM vault RETURNING *",
        "INSERT INTO vault VALUES ('x', 'y') RETURNING *",
        f"COPY events TO '{OUT}/y.csv'",
    ),
)
_PLACES = (
    *("{sql}; {effect}", "{effect}; {sql}", "WITH x AS ({effect}) {sql}", "WITH x AS ({effect}) FROM x", "{effect}"),
    *("COMMIT; {effect}; {sql}", "{sql}; COMMIT; {effect}", "ROLLBACK; {effect}", "EXPLAIN ANALYZE {effect}"),
)


def table(rng: Random, sql: str) -> str:
    """What stands behind a FROM or JOIN, or any other name, becomes something private."""
    target = rng.choice(TABLES)
    places = list(re.finditer(r"\b(?:FROM|JOIN|TABLE|INTO|UPDATE|PIVOT)\s+(\w+)", sql, re.IGNORECASE))
    if not places or rng.random() < 0.2:
        return _any_word(rng, sql, target)
    found = rng.choice(places)
    return sql[: found.start(1)] + target + sql[found.end(1) :]


def added_table(rng: Random, sql: str) -> str:
    """Something private beside what stands behind a FROM."""
    places = list(re.finditer(r"\bFROM\s+\w+", sql, re.IGNORECASE))
    if not places:
        return sql
    place = rng.choice(places).end()
    how = rng.choice(
        (", {}", ", LATERAL {}", " JOIN {} ON true", " POSITIONAL JOIN {}", " UNION ALL FROM {}", " AS {}")
    )
    return sql[:place] + how.format(rng.choice(TABLES)) + sql[place:]


def value(rng: Random, sql: str) -> str:
    """A word becomes an expression that tells something private."""
    return _any_word(rng, sql, rng.choice(VALUES))


def _any_word(rng: Random, sql: str, new: str) -> str:
    parts = tokens(sql)
    places = [place for place, token in enumerate(parts) if is_word(token)]
    if places:
        parts[rng.choice(places)] = new
    return "".join(parts)


def effect(rng: Random, sql: str) -> str:
    """Something that changes the database or the session, before, behind or inside of the statement."""
    return rng.choice(_PLACES).format(sql=sql, effect=rng.choice(EFFECTS))
