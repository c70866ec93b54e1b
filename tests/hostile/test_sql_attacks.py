"""SQL queries that try to read files, reach the network or the engine's own tables, against a real broker.

Every trick has to be refused with one line, whatever part of the broker refuses it.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.testing import Broker

WAIT_S = 60.0
SECRET = "the-secret-of-the-file"


class Target:
    """A broker, and a file that its process can read and that no query may read."""

    def __init__(self, broker: Broker, secret: Path) -> None:
        self.broker = broker
        self.secret = secret

    def post(self, sql: str, timeout_s: float = WAIT_S) -> tuple[int, str]:
        """HTTP status and body."""
        body = json.dumps({"query": sql}).encode()
        request = urllib.request.Request(
            f"{self.broker.http}/api/v1/sql", data=body, headers={"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    secret = tmp_path_factory.mktemp("secret") / "password.txt"
    secret.write_text(SECRET)
    with Broker(process=True, flags={"streams": "memory:", "grpc": "none"}) as broker:
        yield Target(broker, secret)


TRICKS = (
    # A bare name is a function for the engine.
    "SELECT arrayMap(file, ['{f}'])",
    "SELECT arrayMap(`file`, ['{f}'])",
    "SELECT arrayMap(\"file\", ['{f}'])",
    "SELECT arrayMap(/* x */ file /* y */, ['{f}'])",
    "SELECT arrayFilter(file, ['{f}'])",
    "SELECT arrayExists(file, ['{f}'])",
    "SELECT arraySort(file, ['{f}'])",
    "SELECT arrayFirst(file, ['{f}'])",
    "SELECT arraySum(filesystemAvailable, ['default'])",
    "SELECT arrayFold(file, ['{f}'], '')",
    "SELECT mapApply(file, map('{f}', 'x'))",
    "SELECT mapFilter(file, map('{f}', 'x'))",
    "SELECT arrayMap(parseQueryToJSON, ['SELECT 1'])",
    "SELECT arrayMap(formatQuery, ['SELECT 1'])",
    "SELECT arrayMap(aiGenerate, ['x'])",
    "SELECT arrayMap(getSetting, ['readonly'])",
    "SELECT arrayMap(getServerSetting, ['path'])",
    "SELECT arrayMap(getMacro, ['x'])",
    "SELECT arrayMap(sleep, [1])",
    "SELECT arrayMap(showCertificate, ['x'])",
    "SELECT arrayMap(hasColumnInTable, ['system'], ['one'], ['dummy'])",
    "SELECT current_user",
    "SELECT hostname",
    "SELECT arrayJoin(arrayMap(file, ['{f}']))",
    "SELECT * FROM messages WHERE arrayExists(file, ['{f}'])",
    "SELECT 1 ORDER BY arrayMap(file, ['{f}'])",
    "SELECT count() FROM messages GROUP BY arrayMap(file, ['{f}'])",
    "SELECT * FROM numbers(length(arrayMap(file, ['{f}'])[1]))",
    "SELECT 1 LIMIT length(arrayMap(file, ['{f}'])[1])",
    "SELECT sum(number) OVER (ORDER BY arrayMap(file, ['{f}'])) FROM numbers(1)",
    # Lambdas, and names that another part of the query defines.
    "SELECT arrayMap(x -> file(x), ['{f}'])",
    "SELECT arrayMap(x -> arrayMap(file, [x]), ['{f}'])",
    "SELECT arrayMap(x -> arrayMap(y -> arrayMap(file, [y]), [x]), ['{f}'])",
    "SELECT arrayMap(file -> 1, [1]), arrayMap(file, ['{f}'])",
    "SELECT arrayMap(file, ['{f}']), arrayMap((x, file) -> 1, [1], [1])",
    "SELECT arrayMap((SELECT 1 AS file) -> 1, ['{f}'])",
    "SELECT arrayMap(file, ['{f}']), file AS file",
    "SELECT arrayMap(f, ['{f}']), file AS f",
    "WITH file AS f SELECT arrayMap(f, ['{f}'])",
    "WITH x -> file(x) AS f SELECT f('{f}')",
    "WITH x -> file(x) AS f SELECT arrayMap(f, ['{f}'])",
    "WITH (x -> x) AS file SELECT file('{f}')",
    "WITH file AS (SELECT 1) SELECT arrayMap(file, ['{f}'])",
    "SELECT arrayMap(file, ['{f}']) FROM (SELECT * FROM messages)",
    "SELECT arrayMap(file, ['{f}']) FROM (SELECT * EXCEPT (file) FROM (SELECT 1 AS file, 2 AS x))",
    "SELECT arrayMap(file, ['{f}']), (SELECT 1 AS file)",
    "SELECT arrayMap(file, ['{f}']) WHERE 1 IN (SELECT 1 AS file)",
    "SELECT arrayMap(file, ['{f}']) UNION ALL SELECT ['x'] AS file",
    "SELECT arrayMap(file, ['{f}']) FROM (SELECT 1 AS file) AS t (other)",
    "SELECT arrayMap(file, ['{f}']) FROM messages AS file",
    "SELECT arrayMap(file, ['{f}']) FROM numbers(1) AS file",
    "SELECT arrayMap(file, ['{f}']) FROM (SELECT 1) AS file",
    "SELECT arrayMap(file, ['{f}']) FROM messages ARRAY JOIN file AS file",
    "SELECT arrayMap(file, ['{f}']), sum(1) OVER file FROM messages WINDOW file AS ()",
    # Strings and types that hold expressions.
    "SELECT x FROM values('a String, x String ALIAS file(''{f}'')', 'q')",
    "SELECT x FROM values('a String, x String DEFAULT file(''{f}'')', 'q')",
    "SELECT * FROM format('LineAsString', 'a String MATERIALIZED file(''{f}'')', 'q')",
    "SELECT * FROM generateRandom('a String ALIAS file(''{f}'')')",
    "SELECT formatRow('Template', 1)",
    "SELECT structureToProtobufSchema('a String', 'm')",
    "SELECT formatQuery('SELECT 1')",
    "SELECT initializeAggregation('flameGraph', 1)",
    # IN takes tables and table functions.
    "SELECT 0 IN one",
    "SELECT 0 IN system.one",
    "SELECT 0 NOT IN `system`.`one`",
    "SELECT 0 GLOBAL IN system.one",
    "SELECT globalInIgnoreSet(0, system.one)",
    "SELECT inIgnoreSet(0, one)",
    "SELECT notNullInIgnoreSet(0, system.one)",
    "SELECT in(0, system.one)",
    "SELECT nullIn(0, one)",
    "SELECT globalNullIn(0, system.one)",
    "SELECT '{f}' IN file('{f}', 'LineAsString')",
    "SELECT 'x' IN url('http://127.0.0.1:1', 'LineAsString')",
    "SELECT 'x' IN format('LineAsString', 'x')",
    "SELECT 1 IN (SELECT 1 FROM system.one)",
    "SELECT 1 IN messages",
    "SELECT topic IN topic FROM messages",
    # Tables and table functions.
    "SELECT * FROM file('{f}', 'LineAsString')",
    "SELECT * FROM FILE('{f}', 'LineAsString')",
    "SELECT * FROM '{f}'",
    "SELECT * FROM `{f}`",
    "SELECT * FROM filesystem('/')",
    "SELECT * FROM fileCluster('c', '{f}')",
    "SELECT * FROM url('file://{f}', 'LineAsString')",
    "SELECT * FROM s3('http://127.0.0.1:1/x', 'LineAsString')",
    "SELECT * FROM executable('cat {f}', 'LineAsString', 'a String')",
    "SELECT * FROM remote('127.0.0.1:1', 'system', 'one')",
    "SELECT * FROM cluster('default', system.one)",
    "SELECT * FROM mysql('127.0.0.1:1', 'a', 'b', 'c', 'd')",
    "SELECT * FROM postgresql('127.0.0.1:1', 'a', 'b', 'c', 'd')",
    "SELECT * FROM redis('127.0.0.1:1', 'k', 'k String')",
    "SELECT * FROM sqlite('{f}', 't')",
    "SELECT * FROM icebergLocal('/', 'Parquet')",
    "SELECT * FROM deltaLakeLocal('/')",
    "SELECT * FROM python(tidemill_rows_0)",
    "SELECT * FROM arrowstream(tidemill_rows_0)",
    "SELECT * FROM merge('system', 'one')",
    "SELECT * FROM merge(REGEXP('.*'), 'one')",
    "SELECT * FROM view(SELECT file('{f}'))",
    "SELECT * FROM viewExplain('EXPLAIN', '', (SELECT 1))",
    "SELECT * FROM eval('SELECT 1')",
    "SELECT * FROM loop(system.one)",
    "SELECT * FROM dictionary('d')",
    "SELECT * FROM mergeTreeIndex('system', 'one')",
    "SELECT * FROM numbers(1) AS n, system.one",
    "SELECT * FROM messages JOIN system.processes USING (topic)",
    "SELECT * FROM (SELECT * FROM (SELECT * FROM system.settings))",
    "WITH t AS (SELECT * FROM system.one) SELECT 1",
    "WITH one AS (SELECT * FROM one) SELECT * FROM one",
    "WITH RECURSIVE one AS (SELECT * FROM one) SELECT * FROM one",
    "SELECT * FROM INFORMATION_SCHEMA.TABLES",
    "SELECT * FROM default.one",
    "TABLE system.one",
    "FROM system.one SELECT *",
    "VALUES (1)",
    # Functions that do more than compute.
    "SELECT file('{f}')",
    "SELECT File('{f}')",
    "SELECT file('{f}') AS messages FROM messages",
    "SELECT `file`('{f}')",
    "SELECT dictGetString('d', 'a', 1)",
    "SELECT joinGetOrNull('t', 'a', 1)",
    "SELECT catboostEvaluate('{f}', 1)",
    "SELECT aiEmbed('x')",
    "SELECT AIGenerate('x')",
    "SELECT fuzzQuery('SELECT 1')",
    "SELECT getClientHTTPHeader('cookie')",
    "SELECT serverUUID()",
    "SELECT FQDN()",
    "SELECT logTrace('x')",
    "SELECT addressToLine(1)",
    "SELECT evalMLMethod(1, 2)",
    "SELECT regionToName(1)",
    "SELECT COLUMNS('.*') APPLY file FROM messages",
    "SELECT * APPLY(x -> file('{f}')) FROM messages",
    "SELECT * REPLACE (file('{f}') AS topic) FROM messages",
    "SELECT sumIf(1, arrayExists(file, ['{f}']))",
    "SELECT groupArrayIf(file, 1)",
    # Clauses and statements.
    "SELECT 1 SETTINGS user_files_path = '/'",
    "SELECT * FROM messages SETTINGS readonly = 0",
    "SELECT 1 INTO OUTFILE '{f}' TRUNCATE FORMAT CSV",
    "SELECT 1 INTO OUTFILE '{f}' APPEND AND STDOUT",
    "SELECT 1 FORMAT Null",
    "SELECT 1; SELECT file('{f}')",
    "SELECT 1;;SELECT 2",
    "SELECT 1 --\nINTO OUTFILE '{f}' TRUNCATE",
    "/* SELECT 1 */ DROP DATABASE default",
    "SELECT 1 PARALLEL WITH DROP DATABASE default",
    "EXPLAIN SELECT arrayMap(file, ['{f}'])",
    "DESCRIBE (SELECT arrayMap(file, ['{f}']))",
    "CREATE FUNCTION f AS x -> file(x)",
    "CREATE TABLE t ENGINE = File(CSV, '{f}') AS SELECT 1",
    "CREATE DICTIONARY d (a Int8) PRIMARY KEY a SOURCE(FILE(path '{f}' format 'CSV')) LAYOUT(FLAT())",
    "INSERT INTO FUNCTION file('{f}', 'CSV', 'a Int8') VALUES (1)",
    "SYSTEM RELOAD CONFIG",
    "SELECT {{p:Identifier}}",
    "SELECT * FROM {{p:Identifier}}",
    # Text.
    "SELECT arrayMap(\u0444ile, ['{f}'])",
    "SELECT arrayMap(`fi\\x6ce`, ['{f}'])",
    "SELECT arrayMap(`\\x66ile`, ['{f}'])",
    "SELECT\u00a0arrayMap(file,['{f}'])",
    "SELECT arrayMap(\u200bfile, ['{f}'])",
    "\ufeffSELECT arrayMap(file, ['{f}'])",
    "SELECT arrayMap($$file$$, ['{f}'])",
    "SELECT arrayMap(m.file, ['{f}']) FROM messages AS m",
    "SELECT arrayMap(file.file, ['{f}']) FROM messages AS file",
)


@pytest.mark.parametrize("trick", TRICKS, ids=ascii)
def test_a_query_that_does_more_than_read_its_tables_is_refused(target: Target, trick: str) -> None:
    status, body = target.post(trick.replace("{f}", str(target.secret)).replace("{{", "{").replace("}}", "}"))
    assert status == 400, body
    reason = json.loads(body)["error"]
    assert reason
    assert "\n" not in reason
    assert SECRET not in body
    assert target.secret.read_text() == SECRET


HONEST = (
    "SELECT JSONExtractString(value, 'user') AS user, count() FROM messages GROUP BY user ORDER BY user",
    "SELECT upper(user) FROM (SELECT ifNull(value, '') AS user, partition FROM messages) AS m WHERE m.user != 'x'",
    "WITH hosts AS (SELECT key AS hostname FROM messages) SELECT hostname, count() FROM hosts GROUP BY hostname",
    "SELECT arrayMap(file -> upper(file), ['a'])",
    "SELECT arrayMap((x, y) -> x + y, [1], [2]), arrayFold((a, x) -> a + x, [1, 2], toInt64(0))",
    "SELECT key AS user, count() FROM messages GROUP BY user",
    "SELECT m.headers.key, h.value, m.topic FROM messages AS m ARRAY JOIN headers AS h WHERE 0",
    "SELECT topic, row_number() OVER w FROM messages WINDOW w AS (PARTITION BY topic ORDER BY offset) ORDER BY ALL",
    "WITH t AS (SELECT number AS n FROM numbers(3)) SELECT n FROM t WHERE n IN t UNION ALL SELECT 7",
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT sum(n) FROM t",
    "SELECT p.topic FROM partitions p LEFT JOIN messages m ON p.topic = m.topic AND p.partition = m.partition",
    "SELECT * EXCEPT (key) REPLACE (upper(topic) AS topic) FROM messages WHERE topic NOT IN ('a', 'b')",
    "SELECT number FROM numbers(5) WHERE number IN (SELECT number FROM numbers(2)) AND number IN (today(), 1)",
    "SELECT CASE partition WHEN 0 THEN 'a' ELSE 'b' END, partition::String, INTERVAL 1 DAY FROM messages",
    "SELECT topic, quantile(0.9)(length(value)), sumIf(offset, partition = 0) FROM messages GROUP BY topic",
    "SELECT toStartOfMinute(timestamp) m, count() FROM messages GROUP BY m ORDER BY m WITH FILL STEP 60",
    "SELECT messages.topic FROM messages",
    "SELECT a, b FROM (SELECT 1, 2) AS t (a, b)",
    "SELECT generate_series FROM generate_series(1, 3)",
)


@pytest.mark.parametrize("query", HONEST, ids=ascii)
def test_a_query_that_only_reads_its_tables_is_answered(target: Target, query: str) -> None:
    status, body = target.post(query)
    assert status == 200, body
