-- Version 8 of the tables on a server, with rows. Never change it: test_clickhouse_schema.py migrates it.
CREATE DATABASE IF NOT EXISTS `tidemill`;
CREATE TABLE IF NOT EXISTS `tidemill`.schema_version (version UInt32, at DateTime DEFAULT now())
    ENGINE = MergeTree ORDER BY version SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1;
CREATE TABLE IF NOT EXISTS `tidemill`.messages (
    topic LowCardinality(String),
    partition Int32,
    offset Int64 CODEC(Delta, LZ4),
    timestamp DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    timestamp_type Enum8('create' = 0, 'append' = 1) DEFAULT bitAnd(batch_attributes, 8) = 8,
    key Nullable(String),
    value Nullable(String),
    headers Array(Tuple(key String, value Nullable(String))),
    mark Enum8('record' = 0, 'commit' = 1, 'abort' = 2, 'empty' = 3, 'opaque' = 4),
    leader_epoch Int32,
    producer_id Int64,
    producer_epoch Int16,
    sequence Int32 CODEC(Delta, LZ4),
    transactional Bool DEFAULT bitAnd(batch_attributes, 16) = 16,
    batch_offset Int64 CODEC(Delta, LZ4),
    batch_last Int64 CODEC(Delta, LZ4),
    batch_attributes Int16,
    batch_timestamp Int64 CODEC(Delta, LZ4),
    batch_max_timestamp Int64 CODEC(Delta, LZ4),
    batch_records Int32,
    batch_bytes Int32,
    delete_horizon Int64 DEFAULT -1,
    appended_at DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    expires_at DateTime('UTC') CODEC(Delta, LZ4)
) ENGINE = MergeTree
            PARTITION BY toYYYYMMDD(toStartOfInterval(appended_at, INTERVAL 1 WEEK)) ORDER BY (topic, partition, offset)
            TTL expires_at SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1;
CREATE TABLE IF NOT EXISTS `tidemill`.orphans (
    topic LowCardinality(String),
    partition Int32,
    offset Int64 CODEC(Delta, LZ4),
    timestamp DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    timestamp_type Enum8('create' = 0, 'append' = 1) DEFAULT bitAnd(batch_attributes, 8) = 8,
    key Nullable(String),
    value Nullable(String),
    headers Array(Tuple(key String, value Nullable(String))),
    mark Enum8('record' = 0, 'commit' = 1, 'abort' = 2, 'empty' = 3, 'opaque' = 4),
    leader_epoch Int32,
    producer_id Int64,
    producer_epoch Int16,
    sequence Int32 CODEC(Delta, LZ4),
    transactional Bool DEFAULT bitAnd(batch_attributes, 16) = 16,
    batch_offset Int64 CODEC(Delta, LZ4),
    batch_last Int64 CODEC(Delta, LZ4),
    batch_attributes Int16,
    batch_timestamp Int64 CODEC(Delta, LZ4),
    batch_max_timestamp Int64 CODEC(Delta, LZ4),
    batch_records Int32,
    batch_bytes Int32,
    delete_horizon Int64 DEFAULT -1,
    appended_at DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    expires_at DateTime('UTC') CODEC(Delta, LZ4)
, found_at DateTime('UTC') DEFAULT now())
            ENGINE = MergeTree ORDER BY (topic, partition, offset) SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1;
CREATE TABLE IF NOT EXISTS `tidemill`.partitions (
                topic String, partition Int32, version UInt64, start_offset Int64, end_offset Int64,
                cut_offset Int64 DEFAULT -1, saved Bool, state String, pieces String, written_at DateTime DEFAULT now()
            ) ENGINE = ReplacingMergeTree(version) ORDER BY (topic, partition) SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1;
CREATE TABLE IF NOT EXISTS `tidemill`.partition_mapping (low Int32, high Int32, version UInt64)
            ENGINE = ReplacingMergeTree(version) ORDER BY tuple() SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1;
CREATE TABLE IF NOT EXISTS `tidemill`.messages_ingest (
    topic LowCardinality(String),
    partition Int32,
    offset Int64 CODEC(Delta, LZ4),
    timestamp DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    timestamp_type Enum8('create' = 0, 'append' = 1) DEFAULT bitAnd(batch_attributes, 8) = 8,
    key Nullable(String),
    value Nullable(String),
    headers Array(Tuple(key String, value Nullable(String))),
    mark Enum8('record' = 0, 'commit' = 1, 'abort' = 2, 'empty' = 3, 'opaque' = 4),
    leader_epoch Int32,
    producer_id Int64,
    producer_epoch Int16,
    sequence Int32 CODEC(Delta, LZ4),
    transactional Bool DEFAULT bitAnd(batch_attributes, 16) = 16,
    batch_offset Int64 CODEC(Delta, LZ4),
    batch_last Int64 CODEC(Delta, LZ4),
    batch_attributes Int16,
    batch_timestamp Int64 CODEC(Delta, LZ4),
    batch_max_timestamp Int64 CODEC(Delta, LZ4),
    batch_records Int32,
    batch_bytes Int32,
    delete_horizon Int64 DEFAULT -1,
    appended_at DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    expires_at DateTime('UTC') CODEC(Delta, LZ4)
) ENGINE = Null;
CREATE MATERIALIZED VIEW IF NOT EXISTS `tidemill`.messages_routed TO `tidemill`.messages AS
            SELECT * EXCEPT refused FROM (
                SELECT *, throwIf(
                    partition < (SELECT max(low) FROM `tidemill`.partition_mapping)
                    OR partition > (SELECT max(high) FROM `tidemill`.partition_mapping),
                    'the partition belongs to another server'
                ) AS refused FROM `tidemill`.messages_ingest
            ) WHERE refused = 0;
INSERT INTO `tidemill`.schema_version (version) VALUES (1);
CREATE TABLE IF NOT EXISTS `tidemill`.group_members (
                group_id String, member_id String, generation_id Int32, protocol_type String, protocol_name String,
                client_id String, client_host String, metadata String,
                assignment Map(String, Map(Int32, String)) COMMENT 'topic -> (partition -> member)',
                join_time DateTime64(9, 'UTC') DEFAULT now64(9), heartbeat_time DateTime64(9, 'UTC') DEFAULT now64(9),
                state String
            ) ENGINE = MergeTree PARTITION BY toYYYYMMDD(toStartOfInterval(heartbeat_time, INTERVAL 1 WEEK))
            PRIMARY KEY (group_id, member_id) ORDER BY (group_id, member_id, heartbeat_time)
            TTL toDateTime(heartbeat_time) + INTERVAL 4 WEEK SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1;
CREATE TABLE IF NOT EXISTS `tidemill`.consumer_offsets (
                group_id String, topic String, partition Int32, offset Int64, leader_epoch Int32 DEFAULT -1,
                metadata String, member_id String, generation_id Int32 DEFAULT -1, client_id String,
                client_host String, deleted Bool DEFAULT false, commit_time DateTime64(3, 'UTC') DEFAULT now64(3)
            ) ENGINE = ReplacingMergeTree(commit_time) PARTITION BY toYYYYMMDD(toStartOfInterval(commit_time, INTERVAL 1 WEEK))
            PRIMARY KEY (group_id, topic, partition) ORDER BY (group_id, topic, partition)
            TTL toDateTime(commit_time) + INTERVAL 8 WEEK SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1;
INSERT INTO `tidemill`.schema_version (version) VALUES (2);
CREATE VIEW IF NOT EXISTS `tidemill`.consumer_lag AS
            SELECT group_id, topic, partition, committed_offset,
                greatest(next_offset, committed_offset) AS latest_offset,
                latest_offset - committed_offset AS lag,
                if(lag = 0, 0, dateDiff('second', oldest, now64(3))) AS lag_seconds,
                commit_time
            FROM (
                SELECT c.group_id AS group_id, c.topic AS topic, c.partition AS partition,
                    any(c.committed.1) AS committed_offset, any(c.committed.2) AS commit_time,
                    max(m.batch_last) + 1 AS next_offset, minIf(m.timestamp, m.offset >= c.committed.1) AS oldest
                FROM `tidemill`.messages AS m
                RIGHT JOIN (
                    SELECT group_id, topic, partition, argMax((offset, commit_time, deleted), commit_time) AS committed
                    FROM `tidemill`.consumer_offsets GROUP BY group_id, topic, partition HAVING NOT committed.3
                ) AS c ON c.topic = m.topic AND c.partition = m.partition
                GROUP BY group_id, topic, partition
            );
CREATE VIEW IF NOT EXISTS `tidemill`.topic_rates AS
            SELECT topic, toStartOfMinute(appended_at) AS minute, count() AS records,
                records / 60 AS records_per_second, sum(length(ifNull(key, '')) + length(ifNull(value, ''))) AS bytes
            FROM `tidemill`.messages WHERE mark = 'record' GROUP BY topic, minute ORDER BY topic, minute;
CREATE VIEW IF NOT EXISTS `tidemill`.group_activity AS
            SELECT group_id, offsets.topics AS topics, offsets.partitions AS partitions,
                offsets.last_commit AS last_commit, members.members AS members, members.last_heartbeat AS last_heartbeat
            FROM (
                SELECT group_id, uniqExact(topic) AS topics, uniqExact(topic, partition) AS partitions,
                    max(commit_time) AS last_commit
                FROM `tidemill`.consumer_offsets WHERE NOT deleted GROUP BY group_id
            ) AS offsets
            FULL OUTER JOIN (
                SELECT group_id, countIf(last_state != 'Gone') AS members, max(heartbeat) AS last_heartbeat
                FROM (
                    SELECT group_id, member_id, argMax(state, heartbeat_time) AS last_state,
                        max(heartbeat_time) AS heartbeat
                    FROM `tidemill`.group_members GROUP BY group_id, member_id
                ) GROUP BY group_id
            ) AS members USING (group_id);
INSERT INTO `tidemill`.schema_version (version) VALUES (3);
CREATE OR REPLACE VIEW `tidemill`.consumer_lag AS
            WITH committed AS (
                SELECT group_id, topic, partition, argMax((offset, commit_time, deleted), commit_time) AS last
                FROM `tidemill`.consumer_offsets GROUP BY group_id, topic, partition HAVING NOT last.3
            ),
            ends AS (
                SELECT topic, partition, max(batch_last) + 1 AS next_offset FROM `tidemill`.messages
                GROUP BY topic, partition
            ),
            nearby AS (
                SELECT toString(topic) AS topic, partition, offset, timestamp FROM `tidemill`.messages
                WHERE (topic, partition, offset) IN (
                    SELECT topic, partition, arrayJoin(range(last.1, last.1 + 32)) FROM committed
                )
            ),
            unread AS (
                SELECT c.group_id AS group_id, c.topic AS topic, c.partition AS partition,
                    minIf(n.timestamp, n.offset >= c.last.1) AS oldest, countIf(n.offset >= c.last.1) AS found
                FROM committed AS c INNER JOIN nearby AS n ON n.topic = c.topic AND n.partition = c.partition
                GROUP BY group_id, topic, partition
            )
            SELECT c.group_id AS group_id, c.topic AS topic, c.partition AS partition, c.last.1 AS committed_offset,
                greatest(ends.next_offset, committed_offset) AS latest_offset, latest_offset - committed_offset AS lag,
                multiIf(lag = 0, 0, unread.found > 0, dateDiff('second', unread.oldest, now64(3)), NULL) AS lag_seconds,
                c.last.2 AS commit_time
            FROM committed AS c
            LEFT JOIN ends ON ends.topic = c.topic AND ends.partition = c.partition
            LEFT JOIN unread
                ON unread.group_id = c.group_id AND unread.topic = c.topic AND unread.partition = c.partition;
CREATE OR REPLACE VIEW `tidemill`.group_activity AS
            SELECT group_id, countIf(is_active) AS members, uniqExactIf(topic, is_offset) AS topics,
                countIf(is_offset) AS partitions, maxOrNullIf(seen, is_offset) AS last_commit,
                maxOrNullIf(seen, NOT is_offset) AS last_heartbeat
            FROM (
                SELECT group_id, '' AS topic, false AS is_offset, toDateTime64(max(heartbeat_time), 3, 'UTC') AS seen,
                    argMax(state, heartbeat_time) != 'Gone' AND seen > now64(3) - INTERVAL 2 MINUTE AS is_active
                FROM `tidemill`.group_members GROUP BY group_id, member_id
                UNION ALL
                SELECT group_id, topic, true, max(commit_time), false FROM `tidemill`.consumer_offsets
                GROUP BY group_id, topic, partition HAVING NOT argMax(deleted, commit_time)
            ) GROUP BY group_id;
INSERT INTO `tidemill`.schema_version (version) VALUES (4);
CREATE TABLE IF NOT EXISTS `tidemill`.claims (
                topic String, partition Int32, claim Int64, taken_at DateTime64(3, 'UTC') DEFAULT now64(3)
            ) ENGINE = ReplacingMergeTree(claim) ORDER BY (topic, partition) SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1;
CREATE TABLE IF NOT EXISTS `tidemill`.owner (cluster_id String, since DateTime64(3, 'UTC') DEFAULT now64(3))
            ENGINE = MergeTree ORDER BY tuple() SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1;
CREATE TABLE IF NOT EXISTS `tidemill`.partition_mapping (low Int32, high Int32, version UInt64)
            ENGINE = ReplacingMergeTree(version) ORDER BY tuple() SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1;
CREATE TABLE IF NOT EXISTS `tidemill`.messages_claimed (
    topic LowCardinality(String),
    partition Int32,
    offset Int64 CODEC(Delta, LZ4),
    timestamp DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    timestamp_type Enum8('create' = 0, 'append' = 1) DEFAULT bitAnd(batch_attributes, 8) = 8,
    key Nullable(String),
    value Nullable(String),
    headers Array(Tuple(key String, value Nullable(String))),
    mark Enum8('record' = 0, 'commit' = 1, 'abort' = 2, 'empty' = 3, 'opaque' = 4),
    leader_epoch Int32,
    producer_id Int64,
    producer_epoch Int16,
    sequence Int32 CODEC(Delta, LZ4),
    transactional Bool DEFAULT bitAnd(batch_attributes, 16) = 16,
    batch_offset Int64 CODEC(Delta, LZ4),
    batch_last Int64 CODEC(Delta, LZ4),
    batch_attributes Int16,
    batch_timestamp Int64 CODEC(Delta, LZ4),
    batch_max_timestamp Int64 CODEC(Delta, LZ4),
    batch_records Int32,
    batch_bytes Int32,
    delete_horizon Int64 DEFAULT -1,
    appended_at DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    expires_at DateTime('UTC') CODEC(Delta, LZ4)
, claim Int64) ENGINE = Null;
CREATE MATERIALIZED VIEW IF NOT EXISTS `tidemill`.messages_admitted TO `tidemill`.messages AS
            SELECT * EXCEPT (elsewhere, taken_over, claim) FROM (
                SELECT *,
                    throwIf(
                        partition < (SELECT argMax(low, version) FROM `tidemill`.partition_mapping)
                        OR partition > (SELECT argMax(high, version) FROM `tidemill`.partition_mapping),
                        'the partition belongs to another server'
                    ) AS elsewhere,
                    throwIf(
                        (toString(topic), partition, claim) NOT IN (
                            SELECT topic, partition, max(claim) FROM `tidemill`.claims GROUP BY topic, partition
                        ),
                        'another broker has taken the partition over'
                    ) AS taken_over
                FROM `tidemill`.messages_claimed
            ) WHERE elsewhere = 0 AND taken_over = 0;
DROP TABLE IF EXISTS `tidemill`.messages_ingest;
DROP TABLE IF EXISTS `tidemill`.messages_routed;
INSERT INTO `tidemill`.schema_version (version) VALUES (5);
ALTER TABLE `tidemill`.messages ADD COLUMN IF NOT EXISTS topic_id LowCardinality(String) AFTER expires_at;
ALTER TABLE `tidemill`.orphans ADD COLUMN IF NOT EXISTS topic_id LowCardinality(String) AFTER expires_at;
ALTER TABLE `tidemill`.partitions ADD COLUMN IF NOT EXISTS topic_id String,
MODIFY ORDER BY (topic, partition, topic_id);
ALTER TABLE `tidemill`.claims ADD COLUMN IF NOT EXISTS topic_id String,
MODIFY ORDER BY (topic, partition, topic_id);
ALTER TABLE `tidemill`.claims MODIFY TTL toDateTime(taken_at) + INTERVAL 7 DAY
            DELETE WHERE partition = -1;
CREATE TABLE IF NOT EXISTS `tidemill`.messages_offered (
    topic LowCardinality(String),
    partition Int32,
    offset Int64 CODEC(Delta, LZ4),
    timestamp DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    timestamp_type Enum8('create' = 0, 'append' = 1) DEFAULT bitAnd(batch_attributes, 8) = 8,
    key Nullable(String),
    value Nullable(String),
    headers Array(Tuple(key String, value Nullable(String))),
    mark Enum8('record' = 0, 'commit' = 1, 'abort' = 2, 'empty' = 3, 'opaque' = 4),
    leader_epoch Int32,
    producer_id Int64,
    producer_epoch Int16,
    sequence Int32 CODEC(Delta, LZ4),
    transactional Bool DEFAULT bitAnd(batch_attributes, 16) = 16,
    batch_offset Int64 CODEC(Delta, LZ4),
    batch_last Int64 CODEC(Delta, LZ4),
    batch_attributes Int16,
    batch_timestamp Int64 CODEC(Delta, LZ4),
    batch_max_timestamp Int64 CODEC(Delta, LZ4),
    batch_records Int32,
    batch_bytes Int32,
    delete_horizon Int64 DEFAULT -1,
    appended_at DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    expires_at DateTime('UTC') CODEC(Delta, LZ4)
, topic_id LowCardinality(String), claim Int64)
            ENGINE = Null;
CREATE MATERIALIZED VIEW IF NOT EXISTS `tidemill`.messages_accepted TO `tidemill`.messages AS
            SELECT * EXCEPT (elsewhere, taken_over, claim) FROM (
                SELECT *,
                    throwIf(
                        partition < (SELECT argMax(low, version) FROM `tidemill`.partition_mapping)
                        OR partition > (SELECT argMax(high, version) FROM `tidemill`.partition_mapping),
                        'the partition belongs to another server'
                    ) AS elsewhere,
                    throwIf(
                        (toString(topic), partition, toString(topic_id), claim) NOT IN (
                            SELECT topic, partition, topic_id, max(claim) FROM `tidemill`.claims
                            GROUP BY topic, partition, topic_id
                        )
                        OR (toString(topic), toString(topic_id)) IN (
                            SELECT topic, topic_id FROM `tidemill`.claims WHERE partition = -1
                        ),
                        'another broker has taken the partition over'
                    ) AS taken_over
                FROM `tidemill`.messages_offered
            ) WHERE elsewhere = 0 AND taken_over = 0;
DROP TABLE IF EXISTS `tidemill`.messages_claimed;
DROP TABLE IF EXISTS `tidemill`.messages_admitted;
INSERT INTO `tidemill`.schema_version (version) VALUES (6);
ALTER TABLE `tidemill`.partitions ADD COLUMN IF NOT EXISTS given_offset Int64 DEFAULT 0,
            ADD COLUMN IF NOT EXISTS given_ms Int64 DEFAULT 0, ADD COLUMN IF NOT EXISTS kept_ms Int64 DEFAULT -2;
INSERT INTO `tidemill`.schema_version (version) VALUES (7);
ALTER TABLE `tidemill`.partition_mapping ADD COLUMN IF NOT EXISTS place UInt16 DEFAULT 0;
CREATE TABLE IF NOT EXISTS `tidemill`.messages_incoming (

    topic LowCardinality(String),
    partition Int32,
    offset Int64 CODEC(Delta, LZ4),
    timestamp DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    timestamp_type Enum8('create' = 0, 'append' = 1) DEFAULT bitAnd(batch_attributes, 8) = 8,
    key Nullable(String),
    value Nullable(String),
    headers Array(Tuple(key String, value Nullable(String))),
    mark Enum8('record' = 0, 'commit' = 1, 'abort' = 2, 'empty' = 3, 'opaque' = 4),
    leader_epoch Int32,
    producer_id Int64,
    producer_epoch Int16,
    sequence Int32 CODEC(Delta, LZ4),
    transactional Bool DEFAULT bitAnd(batch_attributes, 16) = 16,
    batch_offset Int64 CODEC(Delta, LZ4),
    batch_last Int64 CODEC(Delta, LZ4),
    batch_attributes Int16,
    batch_timestamp Int64 CODEC(Delta, LZ4),
    batch_max_timestamp Int64 CODEC(Delta, LZ4),
    batch_records Int32,
    batch_bytes Int32,
    delete_horizon Int64 DEFAULT -1,
    appended_at DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    expires_at DateTime('UTC') CODEC(Delta, LZ4)
, topic_id LowCardinality(String), claim Int64, spread UInt16
            ) ENGINE = Null;
CREATE MATERIALIZED VIEW IF NOT EXISTS `tidemill`.messages_checked TO `tidemill`.messages AS
            SELECT * EXCEPT (elsewhere, taken_over, claim, spread) FROM (
                SELECT *,
                    throwIf(
                        if(
                            spread > 0,
                            partition % greatest(spread, 1)
                                != (SELECT argMax(place, version) FROM `tidemill`.partition_mapping),
                            partition < (SELECT argMax(low, version) FROM `tidemill`.partition_mapping)
                                OR partition > (SELECT argMax(high, version) FROM `tidemill`.partition_mapping)
                        ),
                        'the partition belongs to another server'
                    ) AS elsewhere,
                    throwIf(
                        (toString(topic), partition, toString(topic_id), claim) NOT IN (
                            SELECT topic, partition, topic_id, max(claim) FROM `tidemill`.claims
                            GROUP BY topic, partition, topic_id
                        )
                        OR (toString(topic), toString(topic_id)) IN (
                            SELECT topic, topic_id FROM `tidemill`.claims WHERE partition = -1
                        ),
                        'another broker has taken the partition over'
                    ) AS taken_over
                FROM `tidemill`.messages_incoming
            ) WHERE elsewhere = 0 AND taken_over = 0;
DROP TABLE IF EXISTS `tidemill`.messages_offered;
DROP TABLE IF EXISTS `tidemill`.messages_accepted;
INSERT INTO `tidemill`.schema_version (version) VALUES (8);
INSERT INTO `tidemill`.partition_mapping (low, high, place, version) VALUES (0, 1, 0, 1);
INSERT INTO `tidemill`.claims (topic, partition, topic_id, claim) VALUES ('orders', 0, 'id', 7);
INSERT INTO `tidemill`.messages_incoming (topic, partition, offset, timestamp, key, value, headers, mark, leader_epoch, producer_id, producer_epoch, sequence, batch_offset, batch_last, batch_attributes, batch_timestamp, batch_max_timestamp, batch_records, batch_bytes, appended_at, expires_at, topic_id, claim, spread) SELECT 'orders', 0, number, now64(3), 'k', concat('v', toString(number)), [], 'record', 0, -1, -1, -1, 0, 2, 0, 0, 0, 3, 100, now64(3), now() + INTERVAL 1 DAY, 'id', 7, 0 FROM numbers(3);
INSERT INTO `tidemill`.group_members (group_id, member_id, generation_id, protocol_type, protocol_name, client_id, client_host, assignment, state) VALUES ('readers', 'm-1', 4, 'consumer', 'range', 'me', '/127.0.0.1', map('orders', map(0, 'm-1')), 'Stable');
INSERT INTO `tidemill`.consumer_offsets (group_id, topic, partition, offset, metadata, member_id, generation_id, client_id, client_host) VALUES ('readers', 'orders', 0, 2, 'note', 'm-1', 4, 'me', '/127.0.0.1');
