-- Statements that the guard lets pass and the engine runs. One statement per paragraph; lines that start
-- with two dashes at the head of a paragraph are headings. tests/sqlguard/test_golden.py reads this file.

-- plain questions

SELECT node_id, rank, duration_ns FROM events WHERE metric_name = 'ncclAllReduce' ORDER BY duration_ns DESC LIMIT 20

FROM events

FROM events WHERE rank = 3 LIMIT 5

from events select count(*) as calls, metric_name group by all order by calls desc

SELECT COUNT(*) FROM EVENTS

SELECT e.node_id FROM events AS e WHERE e.status IS NOT NULL

SELECT events.node_id, events.rank FROM events WHERE events.rank > 1

SELECT "events"."node_id" FROM "events"

SELECT Events.Rank FROM Events ORDER BY eVents.rank

SELECT * FROM nodes ORDER BY last_ns DESC

SELECT n.node_id, c.nodes FROM nodes n JOIN clusters c USING (cluster_id)

TABLE clusters

SELECT 42

SELECT 1;

SELECT 'it''s', E'tab\there', $$dollar$$, $tag$it's$tag$

SELECT node_id /* who */ , rank -- which
FROM events -- where

SELECT 'read_csv(''/etc/passwd'')' AS harmless_text

SELECT node_id FROM events WHERE process = 'entraîner-モデル'

VALUES (1, 'a'), (2, 'b')

SELECT * FROM (VALUES (0, 'ok'), (1, 'late')) AS v(code, word) WHERE code = 1

SELECT n: node_id, r: rank FROM events

SELECT m: max(rank) FROM e: events

SELECT 1_000_000 AS n, 7 // 2, 7 % 4, 2 ** 10, 2 ^ 3, -rank, +rank, ~rank, rank & 3, rank | 4, 1 << 3, 256 >> 2 FROM events

SELECT 0.5, .5, 5., 1e9, 1.5e-3, 1e-9::DOUBLE

SELECT true AND NOT false OR NULL

SELECT rank = 1, rank == 1, rank <> 1, rank != 1, rank IS NULL, rank IS NOT NULL, rank ISNULL, rank NOTNULL FROM events

SELECT rank IS DISTINCT FROM 3, rank IS NOT DISTINCT FROM NULL, rank BETWEEN 1 AND 3, rank NOT BETWEEN 1 AND 3 FROM events

SELECT rank IN (1, 2), rank NOT IN (1, 2), node_id IN ('n0'), rank IN [1, 2] FROM events

SELECT (rank > 1) IS TRUE, (rank > 1) IS NOT FALSE FROM events

-- time

SELECT make_timestamp_ns(timestamp_ns) AS at, epoch_ns(make_timestamp_ns(timestamp_ns)) FROM events

SELECT time_bucket(INTERVAL '10 seconds', make_timestamp(timestamp_ns // 1000)) AS bucket, count(*) FROM events GROUP BY bucket ORDER BY bucket

SELECT count(*) FROM events WHERE timestamp_ns >= epoch_ns(TIMESTAMP '2020-01-01 00:00:00')

SELECT count(*) FROM events WHERE timestamp_ns > epoch_ns(now()) - 300000000000

SELECT count(*) FROM events WHERE to_timestamp(timestamp_ns / 1e9) < current_timestamp - INTERVAL 5 MINUTE

SELECT current_date > DATE '2020-01-01', today() IS NOT NULL, current_timestamp IS NOT NULL

SELECT DATE '2026-11-30' + INTERVAL 1 DAY, TIMESTAMP '2026-11-30 14:30:00' - TIMESTAMP '2026-11-30 14:25:00'

SELECT TIMESTAMPTZ '2026-11-30 14:30:00+00', TIME '14:30', INTERVAL '1 hour 30 minutes', INTERVAL (rank) SECOND FROM events

SELECT date_trunc('minute', make_timestamp_ns(timestamp_ns)) m, extract('hour' FROM make_timestamp_ns(timestamp_ns)) h, date_part('second', make_timestamp_ns(timestamp_ns)) s FROM events

SELECT date_diff('millisecond', min(make_timestamp_ns(timestamp_ns)), max(make_timestamp_ns(timestamp_ns))) FROM events

SELECT strftime(make_timestamp_ns(timestamp_ns), '%Y-%m-%d %H:%M:%S'), strptime('2026-11-30', '%Y-%m-%d') FROM events LIMIT 1

SELECT to_timestamp(timestamp_ns / 1000000000) AT TIME ZONE 'UTC' FROM events LIMIT 2

SELECT year(t), month(t), day(t), hour(t), minute(t), second(t), epoch(t), epoch_ms(t), epoch_us(t), dayname(t), week(t) FROM (SELECT make_timestamp(timestamp_ns // 1000) t FROM events)

SELECT to_seconds(5), to_milliseconds(5), to_minutes(rank), age(TIMESTAMP '2026-01-02', TIMESTAMP '2026-01-01') FROM events LIMIT 1

SELECT * FROM generate_series(TIMESTAMP '2026-11-30 14:00', TIMESTAMP '2026-11-30 15:00', INTERVAL 5 MINUTE) AS t(bucket)

-- aggregates

SELECT node_id, count(*), count(DISTINCT rank), sum(bytes), avg(duration_ns), min(duration_ns), max(duration_ns) FROM events GROUP BY node_id

SELECT cluster_id, node_id, count(*) n FROM events GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL

SELECT node_id, count(*) FROM events GROUP BY 1 ORDER BY 2 DESC, 1 ASC NULLS LAST

SELECT median(duration_ns), mad(duration_ns), quantile_cont(duration_ns, 0.99), quantile_disc(duration_ns, [0.5, 0.99]), mode(rank), stddev(duration_ns), var_samp(duration_ns) FROM events

SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ns), percentile_disc(0.9) WITHIN GROUP (ORDER BY duration_ns DESC), mode() WITHIN GROUP (ORDER BY rank) FROM events

SELECT approx_quantile(duration_ns, 0.99), approx_count_distinct(metric_name), entropy(rank), skewness(duration_ns) FROM events

SELECT arg_max(rank, duration_ns), arg_min(node_id, timestamp_ns), max_by(rank, duration_ns, 3), any_value(node_id), first(rank ORDER BY timestamp_ns), last(rank ORDER BY timestamp_ns) FROM events

SELECT count(*) FILTER (WHERE rank = 0), sum(bytes) FILTER (rank > 0), count_if(status = 'error') FROM events

SELECT string_agg(DISTINCT node_id, ', ' ORDER BY node_id), list(rank ORDER BY rank), array_agg(DISTINCT metric_name) FROM events

SELECT bool_and(duration_ns > 0), bool_or(rank = 7), bit_or(rank), product(1 + rank), corr(rank, duration_ns), regr_slope(duration_ns, rank) FROM events

SELECT histogram(rank) FROM events

SELECT node_id, metric_name, grouping(node_id), count(*) FROM events GROUP BY ROLLUP (node_id, metric_name)

SELECT node_id, metric_name, count(*) FROM events GROUP BY CUBE (node_id, metric_name)

SELECT node_id, rank, count(*) FROM events GROUP BY GROUPING SETS ((node_id), (rank), ())

SELECT 1e3 * sum(duration_ns) / nullif(count(*), 0) AS mean FROM events

SELECT sum(CASE WHEN duration_ns > 5e6 THEN 1 ELSE 0 END) AS slow, CASE rank WHEN 0 THEN 'first' ELSE 'other' END AS who FROM events GROUP BY who

SELECT count() FROM events

-- windows

SELECT rank, timestamp_ns - min(timestamp_ns) OVER (PARTITION BY comm_id, coll_seq) AS lateness_ns FROM events

SELECT rank, row_number() OVER w, rank() OVER w, dense_rank() OVER w, lag(duration_ns) OVER w, lead(duration_ns, 2, 0) OVER w FROM events WINDOW w AS (PARTITION BY node_id ORDER BY timestamp_ns)

SELECT avg(duration_ns) OVER (PARTITION BY rank ORDER BY timestamp_ns ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) FROM events

SELECT sum(bytes) OVER (ORDER BY timestamp_ns RANGE BETWEEN 1000 PRECEDING AND 1000 FOLLOWING EXCLUDE CURRENT ROW) FROM events

SELECT count(*) OVER (ORDER BY rank GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM events

SELECT first_value(rank IGNORE NULLS) OVER (PARTITION BY coll_seq ORDER BY timestamp_ns), nth_value(rank, 2) OVER (PARTITION BY coll_seq ORDER BY timestamp_ns), ntile(4) OVER (ORDER BY duration_ns) FROM events

SELECT percent_rank() OVER (ORDER BY duration_ns), cume_dist() OVER (ORDER BY duration_ns), count(*) FILTER (WHERE rank = 0) OVER () FROM events

SELECT node_id, rank FROM events QUALIFY row_number() OVER (PARTITION BY node_id ORDER BY duration_ns DESC) = 1

SELECT median(duration_ns) OVER (PARTITION BY node_id), quantile_cont(duration_ns, 0.9) OVER (PARTITION BY metric_name) FROM events

-- what one parser of the two cannot read as it was written

SELECT `rank`, `node_id` AS `n` FROM `events`

SELECT node_id, count(*) FROM events GROUP /* and */ BY node_id ORDER -- last
BY node_id

PIVOT events ON metric_name IN ('ncclAllReduce') USING count(*) GROUP BY node_id ORDER BY node_id LIMIT 2

SELECT 'it' LIKE 'i!%' ESCAPE lower('!')

-- common table expressions

WITH slow AS (SELECT * FROM events WHERE duration_ns > 1000) SELECT node_id, count(*) FROM slow GROUP BY node_id

WITH a AS (SELECT rank, timestamp_ns t FROM events), b AS (SELECT rank, max(t) last FROM a GROUP BY rank), c(r, l) AS (SELECT * FROM b) SELECT r FROM c WHERE l > 0

WITH a AS MATERIALIZED (SELECT 1 AS x), b AS NOT MATERIALIZED (SELECT x + 1 AS y FROM a) SELECT * FROM a, b

WITH outer_cte AS (WITH inner_cte AS (SELECT rank FROM events) SELECT * FROM inner_cte) SELECT count(*) FROM outer_cte

SELECT (WITH one AS (SELECT 1 AS v) SELECT v FROM one) AS v, rank FROM events

WITH t AS (SELECT 1 AS a) SELECT * FROM t WHERE a IN (WITH u AS (FROM t) SELECT a FROM u)

WITH t AS (FROM events), u AS (FROM t) FROM u SELECT t: count(*)

WITH "Slow Ones" AS (SELECT rank FROM events) SELECT * FROM "slow ones"

WITH t AS (SELECT 1 AS x) (SELECT x FROM t) UNION ALL (SELECT 2)

WITH e AS (FROM events) SELECT e.rank, t.rank FROM e JOIN e AS t USING (coll_seq)

WITH nodes AS (SELECT DISTINCT node_id AS host FROM events) SELECT host FROM nodes

WITH nodes AS (SELECT node_id AS host FROM nodes) SELECT n.host, (SELECT max(last_ns) FROM clusters) FROM nodes n

SELECT (WITH nodes AS (SELECT 7 AS x) SELECT x FROM nodes), node_id FROM nodes

-- joins

SELECT a.rank, b.rank FROM events a JOIN events b ON a.comm_id = b.comm_id AND a.coll_seq = b.coll_seq AND a.rank < b.rank

SELECT * FROM events a LEFT JOIN nodes n ON n.node_id = a.node_id LIMIT 3

SELECT count(*) FROM events a FULL OUTER JOIN events b USING (event_seq, node_id)

SELECT count(*) FROM events RIGHT JOIN nodes USING (node_id)

SELECT count(*) FROM nodes CROSS JOIN clusters

SELECT count(*) FROM nodes NATURAL JOIN clusters

SELECT count(*) FROM events a SEMI JOIN events b ON a.rank = b.rank AND b.duration_ns > 100

SELECT count(*) FROM events a ANTI JOIN events b ON a.rank = b.rank AND b.duration_ns > 100

SELECT a.rank, b.metric_name FROM events a ASOF JOIN events b ON a.rank = b.rank AND a.timestamp_ns > b.timestamp_ns

SELECT a.rank FROM events a ASOF LEFT JOIN events b USING (rank, timestamp_ns)

SELECT * FROM nodes POSITIONAL JOIN clusters

SELECT e.rank, x.double FROM events e, LATERAL (SELECT e.rank * 2 AS double) x

SELECT e.rank, m FROM events e LEFT JOIN LATERAL (SELECT max(b.duration_ns) AS m FROM events b WHERE b.rank = e.rank) ON true

SELECT count(*) FROM (events a JOIN events b USING (rank)) JOIN events c USING (rank)

SELECT j.key, count(*) FROM events, json_each(events.attrs_json) j GROUP BY j.key

SELECT r.i, count(e.rank) FROM range(8) r(i) LEFT JOIN events e ON e.rank = r.i GROUP BY ALL

SELECT * FROM range(3, 10, 2), generate_series(-2, 2)

SELECT u.x FROM unnest([1, 2, 3]) AS u(x)

SELECT e.node_id, u.frame FROM events e, unnest(string_split(e.attrs_json, ',')) u(frame)

SELECT * FROM unnest([1, 2]) WITH ORDINALITY AS u(x, i)

-- subqueries

SELECT rank FROM events WHERE duration_ns > (SELECT avg(duration_ns) FROM events)

SELECT rank FROM events e WHERE EXISTS (SELECT 1 FROM nodes n WHERE n.node_id = e.node_id)

SELECT rank FROM events WHERE node_id NOT IN (SELECT node_id FROM nodes WHERE ranks = 0)

SELECT rank >= ALL (SELECT rank FROM events), rank = ANY (SELECT rank FROM events) FROM events

SELECT ARRAY(SELECT rank FROM events ORDER BY rank)

SELECT * FROM (SELECT node_id, count(*) AS n FROM events GROUP BY node_id) t(host, calls) WHERE calls > 1

SELECT (SELECT count(*) FROM nodes), (FROM clusters SELECT max(nodes))

SELECT rank FROM events ORDER BY (SELECT max(rank) FROM events) - rank LIMIT (SELECT 3)

-- set operations, limits, samples

SELECT rank FROM events UNION SELECT local_rank FROM events

SELECT node_id FROM events INTERSECT SELECT node_id FROM nodes EXCEPT SELECT 'n9'

SELECT node_id FROM events EXCEPT ALL SELECT node_id FROM nodes

SELECT node_id FROM events UNION ALL BY NAME SELECT rank, node_id FROM events ORDER BY node_id LIMIT 7

(SELECT 1 AS x ORDER BY x LIMIT 1) UNION ALL SELECT 2

SELECT DISTINCT node_id FROM events

SELECT DISTINCT ON (node_id) node_id, rank FROM events ORDER BY node_id, duration_ns DESC

SELECT rank FROM events ORDER BY rank LIMIT 5 OFFSET 2

SELECT rank FROM events LIMIT 10%

SELECT rank FROM events ORDER BY rank FETCH FIRST 3 ROWS ONLY

SELECT rank FROM events ORDER BY ALL DESC

SELECT count(*) FROM events USING SAMPLE 50%

SELECT count(*) >= 0 FROM events TABLESAMPLE reservoir(5 ROWS)

SELECT count(*) >= 0 FROM events USING SAMPLE 20 PERCENT (bernoulli, 42)

SELECT rank AS r, count(*) AS n FROM events GROUP BY r HAVING n > 1 ORDER BY n

SELECT rank, node_id FROM events ORDER BY #1, #2

-- columns

SELECT * EXCLUDE (attrs_json, stack_id) FROM events LIMIT 1

SELECT * REPLACE (duration_ns / 1e6 AS duration_ns) FROM events LIMIT 1

SELECT * RENAME (node_id AS host) FROM events LIMIT 1

SELECT e.* FROM events e LIMIT 1

SELECT events.* EXCLUDE (rank) FROM events LIMIT 1

SELECT min(COLUMNS('.*_ns$')), max(COLUMNS(['rank', 'step'])) FROM events

SELECT COLUMNS(c -> c LIKE '%rank') FROM events LIMIT 1

SELECT COLUMNS(lambda c: c LIKE '%rank') FROM events LIMIT 1

SELECT COLUMNS(* EXCLUDE (attrs_json)) FROM events LIMIT 1

SELECT * LIKE '%_ns' FROM events LIMIT 1

SELECT count(*) AS n, n * 2 AS twice FROM events

SELECT event_seq AS e, e + 1 AS f FROM events WHERE e > 3

-- text

SELECT lower(node_id), upper(metric_name), length(node_id), trim(node_id), left(node_id, 2), right(node_id, 1), substr(node_id, 1, 2), reverse(node_id) FROM events

SELECT substring(node_id FROM 1 FOR 2), position('n' IN node_id), trim(BOTH 'n' FROM node_id), overlay('abc' PLACING 'x' FROM 2) FROM events

SELECT node_id || ':' || rank, concat(node_id, '-', rank), concat_ws('/', cluster_id, node_id, rank) FROM events

SELECT node_id LIKE 'n%', node_id NOT LIKE '%9', node_id ILIKE 'N_', node_id GLOB 'n*', node_id SIMILAR TO 'n[0-9]+', node_id LIKE 'n!%' ESCAPE '!' FROM events

SELECT node_id ~ '^n[0-3]$', node_id !~ 'x', node_id ~~ 'n%', regexp_matches(node_id, 'n'), regexp_full_match(node_id, 'n\d+'), regexp_extract(node_id, '(\d+)', 1), regexp_replace(node_id, '\d', '#', 'g') FROM events

SELECT regexp_extract(attrs_json, '"a":"(\w+)_(\d+)', ['kernel', 'n']) FROM events

SELECT split_part(id, ':', 1), string_split(id, ':')[2], starts_with(metric_name, 'nccl'), ends_with(metric_name, 'Reduce'), contains(metric_name, 'All'), prefix(metric_name, 'n'), strpos(metric_name, 'R') FROM events

SELECT replace(replace(metric_name, 'nccl', ''), 'cuda', ''), translate(node_id, 'n', 'N'), ascii(node_id), levenshtein(node_id, 'n1') FROM events

SELECT format_bytes(bytes), bytes::VARCHAR || ' B', node_id[1:2], node_id[-1], metric_name[5:] FROM events

SELECT node_id COLLATE NOCASE = 'N1' FROM events ORDER BY node_id COLLATE NOCASE

-- json

SELECT attrs_json->>'$.a', attrs_json->'a', attrs_json->>'a' = 'x', json_extract_string(attrs_json, '$.causal_chain_id'), json_extract(attrs_json, '$.a') FROM events

SELECT attrs_json::JSON, (attrs_json::JSON)->>'a', json_valid(attrs_json), json_type(attrs_json, '$.a'), json_keys(attrs_json), json_exists(attrs_json, '$.a') FROM events

SELECT json_object('rank', rank, 'node', node_id), json_array(rank, 1), to_json(rank) FROM events

SELECT json_extract_string(attrs_json, '$.a')::VARCHAR AS a, TRY_CAST(json_extract_string(attrs_json, '$.n') AS BIGINT) AS n FROM events WHERE json_extract_string(attrs_json, '$.a') IS NOT NULL

SELECT e.node_id, j.key, j.value FROM events e, json_each(e.attrs_json) AS j WHERE j.key = 'a'

SELECT json_contains(attrs_json, '{"n":3}') FROM events

-- lists, structs, maps, lambdas

SELECT [rank, rank + 1], [1, 2, 3][1], [1, 2, 3][1:2], [1, 2, 3][-1], list_value(1, 2), len([1, 2]), 2 IN [1, 2] FROM events

SELECT list_transform([1, 2, 3], lambda x: x * 2), list_filter([1, 2, 3], lambda x: x > 1), list_reduce([1, 2, 3], lambda a, b: a + b), list_transform([5, 6], lambda x, i: x + i)

SELECT list_transform([1, 2, 3], x -> x * 2), list_filter([1, 2, 3], x -> x > 1), list_reduce([1, 2, 3], (a, b) -> a + b)

SELECT [x * 2 FOR x IN [1, 2, 3] IF x > 1], [r FOR r IN list(rank)] FROM events

SELECT list_sort(list(rank), 'DESC'), list_distinct(list(rank)), list_sum(list(rank)), list_avg(list(rank)), list_contains(list(rank), 3), list_aggregate(list(rank), 'max'), array_to_string(list(rank), ',') FROM events

SELECT list_reduce(list(node_id ORDER BY rank), lambda acc, x: acc || ',' || x) FROM events

SELECT list_transform(list(rank), lambda r: node_id || ':' || r) FROM events GROUP BY node_id

SELECT {'rank': rank, 'node': node_id} AS s, s['node'], struct_pack(r := rank), row(rank, node_id) FROM events

SELECT struct_extract({'a': 1}, 'a'), unnest({'a': 1, 'b': 2}), (1, 'x'), {'a': {'b': [1, 2]}}.a.b[2]

SELECT MAP {'a': 1, 'b': 2}['a'], map(['x'], [1]), map_keys(MAP {'k': 'v'}), map_entries(map_from_entries([('a', 1)])), cardinality(MAP {'k': 1})

SELECT unnest(list(DISTINCT rank)) AS r FROM events

SELECT (SELECT events FROM events LIMIT 1).node_id

SELECT s.* FROM (SELECT {'a': 1, 'b': rank} AS s FROM events)

SELECT list_zip([1, 2], ['a', 'b']), flatten([[1], [2, 3]]), list_concat([1], [2]), list_slice([1, 2, 3], 1, 2), array_length([1, 2]), list_position([1, 2], 2), list_cosine_similarity([1.0, 2.0], [2.0, 1.0])

-- pivots

SELECT * FROM (SELECT node_id, metric_name, duration_ns FROM events) PIVOT (sum(duration_ns) FOR metric_name IN ('ncclAllReduce', 'cudaLaunchKernel'))

SELECT * FROM events PIVOT (count(*) AS n, max(rank) AS r FOR metric_name IN ('ncclAllReduce' AS ar) GROUP BY node_id)

FROM (SELECT node_id, cpu_ns, blocked_ns FROM events) UNPIVOT (ns FOR kind IN (cpu_ns, blocked_ns))

FROM (SELECT node_id, cpu_ns, blocked_ns FROM events) UNPIVOT INCLUDE NULLS (ns FOR kind IN (cpu_ns AS 'cpu', blocked_ns AS 'blocked'))

UNPIVOT (SELECT node_id, cpu_ns, blocked_ns FROM events) ON cpu_ns, blocked_ns INTO NAME kind VALUE ns

UNPIVOT (SELECT node_id, cpu_ns, blocked_ns FROM events) ON COLUMNS(* EXCLUDE (node_id)) INTO NAME kind VALUE ns

-- casts and types

SELECT rank::VARCHAR, CAST(rank AS BIGINT), TRY_CAST(node_id AS INTEGER), rank::DECIMAL(10, 2), '1'::INT, 1::UBIGINT, '2026-01-01'::DATE, [1]::DOUBLE[], {'a': 1}::STRUCT(a BIGINT), MAP {'a': 1}::MAP(VARCHAR, INT) FROM events

SELECT CAST('5 minutes' AS INTERVAL), x::HUGEINT, typeof(x) FROM (SELECT rank AS x FROM events)

SELECT coalesce(value_double, value_int, 0), ifnull(rank, -1), nullif(rank, 0), if(rank > 1, 'a', 'b'), greatest(rank, 1), least(rank, 1) FROM events

SELECT abs(-1), ceil(1.2), floor(1.8), round(1.234, 2), sqrt(4), ln(2), log10(100), exp(1), pow(2, 3), mod(7, 3), sign(-2), isnan(1.0::DOUBLE), trunc(1.7), pi(), cbrt(8), hash(rank) IS NOT NULL, md5(node_id) FROM events

-- calls in the style of methods, on a public column

SELECT node_id.upper() AS host, metric_name.replace('nccl', '').lower() AS op, e.node_id.length() AS n FROM events e

SELECT duration_ns.max() AS longest, rank.quantile_cont(0.5) AS r FROM events

SELECT attrs_json.json_extract_string('$.a') AS a FROM events WHERE node_id.starts_with('n')

-- what scripts write with marks: composed letters are not the only ones

SELECT 'entraîneur', 'हिन्दी', 'ไทย' AS "größe"

-- questions about a job

WITH late AS (SELECT coll_seq, arg_max(rank, timestamp_ns) AS last_rank, max(timestamp_ns) - median(timestamp_ns - 1700000000000000000) AS ns FROM events WHERE metric_name = 'ncclAllReduce' GROUP BY coll_seq) SELECT last_rank, count(*) AS times FROM late GROUP BY last_rank ORDER BY times DESC

WITH g AS (SELECT rank, coll_seq, coll_seq - row_number() OVER (PARTITION BY rank ORDER BY coll_seq) AS island FROM (SELECT DISTINCT rank, coll_seq FROM events)) SELECT rank, min(coll_seq), max(coll_seq) FROM g GROUP BY rank, island

WITH m AS (SELECT median(duration_ns) AS med, mad(duration_ns) AS d FROM events) SELECT rank, count(*) FROM events, m WHERE duration_ns > med + 5 * d GROUP BY rank

WITH per AS MATERIALIZED (SELECT node_id, avg(value_double) AS v FROM events GROUP BY node_id) SELECT node_id, round((v - avg(v) OVER ()) / nullif(stddev(v) OVER (), 0), 6) AS z FROM per

SELECT r.i AS rank FROM range(16) AS r(i) LEFT JOIN events e ON e.rank = r.i GROUP BY r.i HAVING count(e.rank) = 0

SELECT a.rank, b.rank, corr(a.duration_ns, b.duration_ns) FROM events a JOIN events b USING (comm_id, coll_seq) WHERE a.rank < b.rank GROUP BY 1, 2

SELECT e.rank, k.metric_name, sum(k.duration_ns) FROM events e JOIN events k ON k.rank = e.rank AND k.timestamp_ns BETWEEN e.timestamp_ns - 500000000 AND e.timestamp_ns WHERE e.metric_name = 'ncclAllReduce' GROUP BY ALL ORDER BY 3 DESC LIMIT 20

PIVOT (SELECT rank, metric_name, duration_ns FROM events) ON metric_name IN ('ncclAllReduce', 'cudaLaunchKernel') USING sum(duration_ns) AS ns, count(*) AS n GROUP BY rank

UNPIVOT (SELECT rank, sum(cpu_ns) AS cpu, sum(blocked_ns) AS blocked FROM events GROUP BY rank) ON cpu, blocked INTO NAME what VALUE ns

SELECT CAST(floor(log10(greatest(duration_ns, 1))) AS INTEGER) AS magnitude, count(*) FROM events GROUP BY magnitude ORDER BY magnitude

SELECT k.key, count(*) FROM events e CROSS JOIN json_each(e.attrs_json) k GROUP BY k.key ORDER BY 2 DESC

SELECT rank, avg(duration_ns) FILTER (WHERE step % 14 = 0) AS every14, avg(duration_ns) FILTER (step % 14 <> 0) AS others FROM events GROUP BY rank

SELECT rank = ALL (ARRAY[1, 2]), rank = ANY ([1, 2]), rank <> ALL (SELECT ranks FROM nodes) FROM events

SELECT * FROM (VALUES ('n0', 'rack a'), ('n1', 'rack b')) AS racks(node_id, rack) JOIN nodes USING (node_id)

SELECT (node_id, rank) IN (('n0', 0), ('n2', 5)), count(DISTINCT (node_id, rank)) FROM events GROUP BY 1

SELECT parse_filename('/srv/train.py'), parse_dirname('/srv/train.py'), map_concat(MAP {'a': 1}, MAP {'b': 2}), try(CAST('x' AS INT))

SELECT unnest([{'a': 1}, {'a': 2}], recursive := true)
