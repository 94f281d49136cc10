-- TRANSACTION_PAYLOAD: whole transactions compressed with zstd, partial JSON updates among them.
SET GLOBAL binlog_transaction_compression = ON;
SET GLOBAL binlog_rows_query_log_events = ON;
SET GLOBAL binlog_row_value_options = 'PARTIAL_JSON';
-- session: a
CREATE DATABASE v;
USE v;
CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, s TEXT, j JSON);
INSERT INTO t (s, j) VALUES ('one', '{"a": 1}'), (REPEAT('compresses well ', 200), '{"a": "a long enough value, a long enough value", "b": 2}');
BEGIN;
INSERT INTO t (s) VALUES ('small');
UPDATE t SET j = JSON_SET(j, '$.b', 'changed') WHERE id = 2;
UPDATE t SET s = CONCAT(s, '!') WHERE id <> 2;
COMMIT;
SET gtid_next = 'AUTOMATIC:tag';
DELETE FROM t WHERE id = 1;
SET gtid_next = 'AUTOMATIC';
SET SESSION binlog_transaction_compression = OFF;
INSERT INTO t (s) VALUES ('plain');
