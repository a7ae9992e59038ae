-- Statements that the guard refuses, each with the codes it gives on the line before, marked with "--:".
-- One statement per paragraph. \u{200B} stands for the character with that number, since it cannot be seen.
-- The tables vault(owner, token), a, b, k and the type mood exist in the tests' database and are not public.
-- Other lines that start with two dashes at the head of a paragraph are headings.

-- tables that are not public

--: table_not_allowed
SELECT owner, token FROM vault

--: table_not_allowed
FROM vault

--: table_not_allowed
TABLE vault

--: table_not_allowed
SELECT e.node_id, v.token FROM events e LEFT JOIN vault v ON v.owner = e.node_id

--: table_not_allowed
SELECT node_id FROM events UNION ALL SELECT token FROM vault

--: table_not_allowed
SELECT node_id FROM events WHERE node_id IN (SELECT owner FROM vault)

--: table_not_allowed
SELECT (SELECT token FROM vault LIMIT 1) AS t, rank FROM events

--: table_not_allowed
SELECT rank FROM events ORDER BY (SELECT count(*) FROM vault)

--: table_not_allowed
SELECT rank FROM events LIMIT (SELECT count(*) FROM vault)

--: table_not_allowed
SELECT rank FROM events LIMIT 5 OFFSET (SELECT count(*) FROM vault)

--: table_not_allowed
SELECT count(*) FILTER (WHERE EXISTS (FROM vault)) FROM events

--: table_not_allowed
SELECT sum(rank) OVER (ORDER BY rank ROWS BETWEEN (SELECT 1 FROM vault) PRECEDING AND CURRENT ROW) FROM events

--: table_not_allowed
SELECT rank FROM events WINDOW w AS (PARTITION BY (SELECT token FROM vault))
QUALIFY row_number() OVER w = 1

--: table_not_allowed
SELECT rank FROM events QUALIFY (SELECT token FROM vault) = row_number() OVER ()

--: table_not_allowed
SELECT DISTINCT ON ((SELECT token FROM vault)) node_id FROM events

--: table_not_allowed
SELECT count(*) FROM events GROUP BY GROUPING SETS (((SELECT token FROM vault)), ())

--: table_not_allowed
SELECT rank FROM events GROUP BY rank HAVING (SELECT true FROM vault)

--: table_not_allowed
VALUES (1), ((SELECT token FROM vault))

--: table_not_allowed
SELECT {'t': (SELECT token FROM vault)} AS s

--: table_not_allowed
SELECT [(SELECT token FROM vault)][1]

--: table_not_allowed
SELECT MAP {'t': (SELECT token FROM vault)}

--: table_not_allowed
SELECT list_transform([1], lambda x: (SELECT token FROM vault))

--: table_not_allowed
SELECT [(SELECT token FROM vault) FOR x IN [1] IF true]

--: table_not_allowed
SELECT COLUMNS(lambda c: (SELECT true FROM vault)) FROM events

--: table_not_allowed
SELECT * REPLACE ((SELECT token FROM vault) AS node_id) FROM events

--: table_not_allowed
SELECT * FROM events, LATERAL (SELECT token FROM vault WHERE owner = events.node_id)

--: table_not_allowed
SELECT * FROM events SEMI JOIN vault ON true

--: table_not_allowed
SELECT * FROM events POSITIONAL JOIN vault

--: table_not_allowed
SELECT * FROM events a ASOF JOIN vault b ON a.node_id >= b.owner

--: table_not_allowed
SELECT * FROM events a JOIN events b ON (SELECT true FROM vault)

--: table_not_allowed
FROM unnest((SELECT list(token) FROM vault))

--: table_not_allowed
FROM json_each((SELECT to_json(token) FROM vault))

--: table_not_allowed
SELECT * FROM vault PIVOT (count(*) FOR owner IN ('x'))

--: table_not_allowed
UNPIVOT vault ON owner, token

--: table_not_allowed
SELECT string_agg(node_id, (SELECT token FROM vault)) FROM events

--: table_not_allowed
SELECT percentile_cont((SELECT 0.5 FROM vault)) WITHIN GROUP (ORDER BY rank) FROM events

--: table_not_allowed
SELECT 'x' LIKE 'y' ESCAPE (SELECT '!' FROM vault)

--: table_not_allowed
SELECT [1, 2][(SELECT 1 FROM vault):2]

--: table_not_allowed
SELECT ARRAY(FROM vault)

--: table_not_allowed
SELECT CAST((FROM vault) AS VARCHAR)

--: table_not_allowed
FROM (VALUES ((SELECT token FROM vault))) AS t(x)

--: table_not_allowed
((((SELECT token FROM vault))))

--: table_not_allowed
SELECT token FROM vault AS events

--: table_not_allowed
SELECT token /* from */ FROM -- events
vault

-- names that look like something else

--: qualified_table
SELECT * FROM main.events

--: qualified_table
SELECT * FROM main.vault

--: qualified_table
SELECT * FROM "memory"."main"."vault"

--: qualified_table
SELECT * FROM information_schema.columns

--: qualified_table
SELECT * FROM passwords.csv

--: table_not_allowed
SELECT * FROM 'passwords.csv'

--: table_not_allowed
SELECT * FROM "/etc/passwd"

--: table_not_allowed
SELECT * FROM events, 's3://bucket/key.parquet'

--: table_not_allowed
WITH p AS (FROM 'https://example.org/x.json') FROM p

--: table_not_allowed
SELECT * FROM duckdb_views

--: table_not_allowed
SELECT * FROM sqlite_temp_schema

--: table_not_allowed
SELECT * FROM pragma_database_list

-- common table expressions: a definition does not see itself, and nothing sees what is defined later or elsewhere

--: table_not_allowed
WITH vault AS (SELECT * FROM vault) SELECT * FROM vault

--: table_not_allowed
WITH a AS (SELECT * FROM b), b AS (SELECT 1 AS x) SELECT * FROM a

--: table_not_allowed
WITH a AS (WITH b AS (SELECT 1) SELECT * FROM b) SELECT * FROM b

--: table_not_allowed
SELECT * FROM (WITH a AS (SELECT 1 AS x) SELECT * FROM a) AS s, a

--: table_not_allowed
(WITH b AS (SELECT 'q' AS x) FROM b) UNION ALL (SELECT x FROM b)

--: table_not_allowed
SELECT (WITH a AS (SELECT 1) SELECT count(*) FROM a), (SELECT count(*) FROM a)

--: table_not_allowed
WITH a AS (SELECT 1 AS x), c AS (WITH b AS (SELECT * FROM a) SELECT 1), d AS (FROM b) FROM d

--: qualified_table
WITH vault AS (SELECT 1 AS token) SELECT * FROM main.vault

--: table_not_allowed
WITH "\u{212A}" AS (SELECT 'Kelvin sign, not the letter' AS x) SELECT * FROM k

--: shadowed_relation
WITH events AS (SELECT 1 AS rank) SELECT * FROM events

--: shadowed_relation
WITH "Events" AS (SELECT 1 AS rank) SELECT 1

--: shadowed_relation
SELECT * FROM (WITH EVENTS AS (FROM nodes) FROM events)

--: table_not_allowed
WITH nodes AS (SELECT * FROM vault) SELECT * FROM nodes

--: recursive_cte
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r

--: recursive_cte
WITH RECURSIVE t AS (SELECT 1 AS x) SELECT x FROM t

-- functions in FROM

--: table_function_not_allowed
SELECT * FROM read_csv('/etc/passwd')

--: table_function_not_allowed
SELECT * FROM ReAd_TeXt('/proc/self/environ')

--: table_function_not_allowed
SELECT * FROM "read_blob"('/etc/shadow')

--: table_function_not_allowed
SELECT * FROM read_json/**/('/etc/config.json')

--: table_function_not_allowed
SELECT * FROM events, LATERAL read_text(events.attrs_json)

--: table_function_not_allowed
SELECT * FROM range(1) AS r(i), glob('/home/*')

--: table_function_not_allowed
SELECT content FROM read_text(['/etc/hosts', '/etc/passwd'])

--: table_function_not_allowed
SELECT * FROM parquet_metadata('x.parquet')

--: table_function_not_allowed
SELECT * FROM query('SELECT * FROM vault')

--: table_function_not_allowed
SELECT * FROM query_table(['a', 'b'])

--: table_function_not_allowed
FROM histogram(vault, owner)

--: table_function_not_allowed
FROM histogram_values("/tmp/x.csv", c)

--: table_function_not_allowed table_not_allowed
FROM summary((FROM vault))

--: table_function_not_allowed
FROM seq_scan(vault)

--: table_function_not_allowed
FROM duckdb_memory()

--: table_function_not_allowed
FROM pragma_collations()

--: table_function_not_allowed
FROM force_checkpoint()

--: table_function_not_allowed
FROM enable_profiling()

--: table_function_not_allowed
FROM repeat('x', 5)

--: table_function_not_allowed
FROM test_all_types()

--: qualified_function
FROM main.range(3)

--: qualified_function table_function_not_allowed
FROM owned.tables()

--: table_function_not_allowed
FROM (VALUES (1)) v JOIN sniff_csv('/etc/passwd') ON true

-- functions as values

--: function_not_allowed
SELECT repeat('x', 1000000000)

--: function_not_allowed
SELECT lpad('x', 1000000000, 'y'), rpad('x', 10, 'y')

--: function_not_allowed
SELECT format('{:>1000}', 'x'), printf('%1000d', 1)

--: function_not_allowed
SELECT len(range(1000000))

--: function_not_allowed
SELECT unnest(generate_series(1, 3))

--: function_not_allowed
SELECT [x FOR x IN range(5)]

--: function_not_allowed
FROM unnest(range(5))

--: function_not_allowed
SELECT list_resize([1], 100), array_resize([1], 100)

--: function_not_allowed
SELECT 20!

--: function_not_allowed
SELECT factorial(20)

--: function_not_allowed
SELECT read_text('/etc/passwd')

--: function_not_allowed
SELECT current_setting('secret_directory'), getvariable('x')

--: function_not_allowed session_value
SELECT version(), current_database(), current_schemas(true)

--: function_not_allowed
SELECT nextval('s'), setval('s', 1), setseed(0.5)

--: function_not_allowed
SELECT sleep_ms(10), pg_sleep(1)

--: function_not_allowed
SELECT write_log('hello'), error('stop')

--: function_not_allowed
SELECT json_serialize_sql('SELECT 1'), json_execute_serialized_sql('{}')

--: function_not_allowed
SELECT pg_get_viewdef(1), pg_conf_load_time()

--: function_not_allowed
SELECT reservoir_quantile(rank, 0.5, 1000000000) FROM events

--: function_not_allowed
SELECT list_aggregate([1, 2], 'reservoir_quantile', 0.5)

--: function_not_allowed
SELECT list_aggregate([1, 2], 'm' || 'ax')

--: function_not_allowed
SELECT damerau_levenshtein(node_id, 'n1') FROM events

--: function_not_allowed
SELECT leak()

--: qualified_function
SELECT main.upper('x')

--: qualified_function
SELECT system.main.upper('x')

--: qualified_function
SELECT e.upper() FROM events e

--: session_value
SELECT current_user, session_user

--: session_value
SELECT user FROM events

--: session_value
SELECT rank FROM events WHERE node_id = current_catalog

-- statements that are no query

--: not_a_select
DELETE FROM events WHERE rank = 1

--: not_a_select
INSERT INTO events (rank) VALUES (1)

--: not_a_select
UPDATE events SET rank = 0

--: not_a_select
MERGE INTO events USING nodes ON false WHEN NOT MATCHED THEN INSERT DEFAULT VALUES

--: not_a_select
TRUNCATE events

--: not_a_select
CREATE TABLE t AS SELECT 1

--: not_a_select
CREATE OR REPLACE TEMP VIEW events AS SELECT 1

--: not_a_select
CREATE MACRO m() AS TABLE FROM vault

--: not_a_select
DROP VIEW nodes

--: not_a_select
ALTER TABLE events ADD COLUMN x INT

--: not_a_select
COPY events TO '/tmp/events.csv'

--: not_a_select
COPY (SELECT 1) TO '/tmp/one.parquet'

--: not_a_select
EXPORT DATABASE '/tmp/all'

--: not_a_select
ATTACH ':memory:' AS other

--: not_a_select
DETACH other

--: not_a_select
USE main

--: not_a_select
SET memory_limit = '1TB'

--: not_a_select
RESET threads

--: not_a_select
SET VARIABLE x = 1

--: not_a_select
PRAGMA table_info('vault')

--: not_a_select
CALL pragma_version()

--: not_a_select
INSTALL httpfs

--: not_a_select
LOAD httpfs

--: not_a_select
BEGIN TRANSACTION

--: not_a_select
COMMIT

--: not_a_select
CHECKPOINT

--: not_a_select
VACUUM

--: not_a_select
EXPLAIN SELECT 1

--: not_a_select
EXPLAIN ANALYZE DELETE FROM events

--: not_a_select
PREPARE p AS SELECT 1

--: not_a_select
EXECUTE p

--: not_a_select construct_not_allowed
DESCRIBE vault

--: not_a_select construct_not_allowed
SHOW TABLES

--: construct_not_allowed
FROM (DESCRIBE events)

--: construct_not_allowed
SELECT * FROM (SUMMARIZE events)

--: construct_not_allowed
WITH gone AS (DELETE FROM events RETURNING *) SELECT count(*) FROM gone

--: construct_not_allowed
WITH x AS (INSERT INTO events (rank) VALUES (1) RETURNING rank) FROM x

--: construct_not_allowed
WITH x AS (UPDATE events SET rank = 1 RETURNING rank) SELECT 1

--: construct_not_allowed
WITH x AS (COPY events TO '/tmp/x.csv') FROM x

-- more than one statement

--: not_one_statement
SELECT 1; SELECT 2

--: not_one_statement
SELECT 1; DROP TABLE events

--: not_one_statement
SELECT 1;-- the rest
ROLLBACK

--: not_one_statement
SELECT $q$;$q$; DELETE FROM events

--: empty
  

--: not_one_statement
;;

--: not_one_statement
-- nothing but a comment

-- characters and lexing

--: invisible_character
SELECT 1 AS x\u{200B}UNION\u{200B}ALL\u{200B}FROM\u{200B}vault

--: invisible_character
SELECT * FROM\u{FEFF}events

--: invisible_character
SELECT\u{A0}1

--: invisible_character
SELECT 1\u{2060}, 2

--: invisible_character
SELECT 'a\u{202E}b'

--: invisible_character
SELECT 'a\u{FE0F}'

--: invisible_character
SELECT\u{0C}1

--: invisible_character
SELECT 1\u{0}

--: invisible_character
SELECT 1\u{85}-- x

--: invisible_character
SELECT e'\x01'

--: syntax
SELECT x'41'

--: syntax
SELECT 1 {% raw %}

--: syntax
SELECT 1 /* never closed

--: syntax
SELEC rank FROM events

--: syntax
SELECT rank FROM events WHERE

--: syntax construct_not_allowed table_not_allowed
SELECT * INTO copy FROM events

--: parameter
SELECT rank FROM events WHERE rank = ?

--: parameter
SELECT $1, $name

--: parameter
SELECT $1a$, 'one literal for one parser, SQL for the other' AS b$1a$

-- types, collations, times past

--: type_not_allowed
SELECT 'ok'::mood

--: type_not_allowed
SELECT NULL::STRUCT(a mood), NULL::mood[]

--: type_not_allowed
SELECT CAST('x' AS main.mood)

--: type_not_allowed
SELECT mood 'ok'

--: type_not_allowed
SELECT attrs_json::JSON::VARIANT FROM events

--: collation_not_allowed
SELECT 'a' COLLATE "nosuch.nocase"

--: construct_not_allowed
SELECT * FROM events AT (VERSION => 1)

--: construct_not_allowed
SELECT * FROM events PIVOT (count(*) FOR metric_name IN mood)

--: construct_not_allowed
SELECT ({'it''s': 1})."it's"

--: dynamic_pivot
PIVOT events ON metric_name USING count(*)

--: dynamic_pivot table_not_allowed
PIVOT events ON metric_name IN (SELECT owner FROM vault) USING count(*)

-- series

--: series_too_long
FROM range(1000000000000)

--: series_too_long
FROM generate_series(0, 9000000000, 2)

--: series_too_long
FROM generate_series(TIMESTAMP '2000-01-01', TIMESTAMP '2026-01-01', INTERVAL 1 SECOND)

--: series_not_literal
FROM events, range(events.rank)

--: series_not_literal
FROM range((SELECT max(rank) FROM events))

--: series_not_literal
FROM range(10 ** 12)

--: series_not_literal
FROM range(stop := 1000000000000, start := 0)

--: series_not_literal
FROM generate_series(now() - INTERVAL 1 DAY, now(), INTERVAL 1 MICROSECOND)

-- values that grow beyond what the engine bounds

--: grows_too_large
SELECT list_reduce(['a', 'b', 'c'], lambda x, y: x || x)

--: grows_too_large
SELECT list_transform(list(rank), lambda x: list(rank)) FROM events

--: grows_too_large
SELECT [[x + y FOR y IN list(rank)] FOR x IN list(rank)] FROM events

--: grows_too_large
SELECT list_filter(list(rank), lambda x: len(list_filter(list(rank), lambda y: y > x)) > 0) FROM events

--: grows_too_large
SELECT replace(replace(replace(node_id, 'n', 'aaaaaaaaaaaaaaaaaaaa'), 'a', 'bbbbbbbbbbbbbbbbbbbb'), 'b', 'cccccccccccc') FROM events

--: grows_too_large
SELECT regexp_replace(regexp_replace(attrs_json, '.*', '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0', 'g'), '.*', '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0', 'g') FROM events

--: argument_too_large
SELECT string_agg(node_id) LIKE '%' || string_agg(node_id) || '%' FROM events

--: argument_too_large
SELECT json_contains(string_agg('[', '') || string_agg(']', ''), '1') FROM range(1000000)

--: argument_too_large
SELECT json_contains(t, '1') FROM (SELECT attrs_json[10:] AS t FROM events)

--: too_large
SELECT count(*) FROM events GROUP BY CUBE (rank, step, pid, tid, bytes, node_id, job_id, status)

-- several faults at once are all named

--: table_not_allowed function_not_allowed session_value type_not_allowed
SELECT version(), user, 1::mood FROM vault

-- calls in the style of methods: on a column they are ordinary calls, so the function has to be allowed

--: function_not_allowed
SELECT node_id.read_text() FROM events

--: function_not_allowed
SELECT attrs_json.repeat(1000000000), e.rank.sleep_ms() FROM events e

--: function_not_allowed
SELECT node_id.getvariable(), node_id.current_setting() FROM events

--: function_not_allowed
SELECT node_id.lpad(1000000000, 'x').rpad(2, 'y') FROM events

--: table_not_allowed
SELECT node_id.replace((SELECT token FROM vault), 'x') FROM events

--: qualified_function table_function_not_allowed
FROM attrs_json.read_text('/etc/issue')

--: qualified_function table_function_not_allowed
SELECT * FROM events.read_text('/etc/issue')

--: qualified_function function_not_allowed
SELECT owned.upper('x'), memory.main.upper('x'), pg_catalog.version()

-- paths that are put together, and other ways of naming a function

--: table_function_not_allowed
SELECT * FROM read_text(chr(47) || 'etc' || chr(47) || 'issue')

--: table_function_not_allowed
SELECT * FROM read_text($$/etc/issue$$)

--: table_function_not_allowed
SELECT * FROM Read_CSV_Auto ( /* path */ '/etc/issue' -- end
)

--: qualified_function table_function_not_allowed
SELECT * FROM system.main.read_text('/etc/issue')

--: table_function_not_allowed
WITH read_text AS (SELECT 1 AS x) SELECT * FROM read_text('/etc/issue')

--: table_function_not_allowed
SELECT list_transform(['/etc/issue'], lambda p: (SELECT content FROM read_text(p)))

--: syntax
SELECT * FROM U&"\0072ead_text"('/etc/issue')

--: table_not_allowed
UNPIVOT 'x.csv' ON a, b

--: table_not_allowed
SELECT (FROM 'a.csv' SELECT count(*))

--: construct_not_allowed not_a_select
SUMMARIZE 'x.csv'

--: table_function_not_allowed
SELECT * FROM read_csv('http://169.254.169.254/latest/meta-data/iam')

--: not_a_select
CONNECT 'quack:example.org:9494'

--: table_function_not_allowed
SELECT * FROM postgres_scan('host=10.0.0.1', 'public', 't')

-- macros and aggregates where a table stands

--: table_function_not_allowed
FROM count(*)

--: table_function_not_allowed
FROM unnest(histogram(rank)) x, histogram_values('/etc/passwd', 'a')

--: table_function_not_allowed
FROM duckdb_logs_parsed('HTTP')

--: table_function_not_allowed
FROM generate_subscripts([1, 2], 1)

-- writes in other dresses

--: construct_not_allowed
WITH d AS (TRUNCATE vault) SELECT 1

--: syntax
SELECT * FROM (DELETE FROM events RETURNING *)

--: not_a_select
/*! SELECT */ DELETE FROM events

--: not_a_select
delete/**/from/**/events

--: syntax not_a_select
EXECUTE IMMEDIATE 'SELECT 1'

--: not_a_select
UPDATE EXTENSIONS

--: syntax
DECLARE c CURSOR FOR SELECT 1

--: construct_not_allowed
FROM (SHOW ALL TABLES)

--: syntax
SELECT * FROM (EXPLAIN SELECT 1)

--: not_one_statement
SELECT 1 AS ";" ; TRUNCATE events

-- one text, two readings

--: table_not_allowed
SELECT /* /* */ 1 */ (FROM vault)

--: table_not_allowed
SELECT E'\'' FROM vault --'

--: table_not_allowed
SELECT '\' FROM vault --'

--: syntax
SELECT 1 # a comment of MySQL

--: table_not_allowed
SELECT * FROM events NEAREST JOIN vault ON true

--: invisible_character
SELECT\u{3000}1

--: invisible_character
SELECT node\u{AD}_id FROM events

--: table_not_allowed
SELECT * FROM \u{FF45}vents

--: invisible_character
SELECT 'a' AS "\u{2066}rank\u{2069}"

--: not_a_select
```sql
DELETE FROM vault
```

--: syntax
```sql
SELECT 1
``` ; SELECT 2 ```

-- definitions

--: table_not_allowed
WITH vault AS (FROM vault), b AS (SELECT 1) FROM b

--: table_not_allowed
WITH a AS (SELECT (FROM b)), b AS (SELECT 1) FROM a

--: table_not_allowed
SELECT * FROM (FROM a), (WITH a AS (SELECT 1) FROM a)

--: construct_not_allowed recursive_cte
WITH RECURSIVE t USING KEY (a) AS (SELECT 1 AS a UNION SELECT a FROM t) FROM t

-- sizes

--: function_not_allowed
SELECT bar(rank, 0, 10, 100000000), to_base(1, 2, 1000000000), bitstring('1', 2000000000) FROM events

--: function_not_allowed
SELECT approx_top_k(rank, 1000000000), lttb(rank, rank, 1000000000) FROM events

--: function_not_allowed
SELECT json_merge_patch_diff(attrs_json, attrs_json), json_normalize(attrs_json) FROM events

--: grows_too_large
SELECT list_reduce(list(attrs_json), lambda a, b: a || a || b) FROM events

--: series_too_long
SELECT count(*) FROM range(1000001)
