-- PARTIAL_UPDATE_ROWS: what changed inside JSON columns, as diffs.
SET GLOBAL binlog_row_value_options = 'PARTIAL_JSON';
-- session: a
CREATE DATABASE v;
USE v;
CREATE TABLE j (id INT PRIMARY KEY, a JSON, n INT, b JSON, s VARCHAR(10));
INSERT INTO j VALUES
  (1, '{"k": 1, "list": [1, 2, 3], "deep": {"x": {"y": "long enough to be worth it, long enough to be worth it"}}}', 1, '{"z": true}', 'one'),
  (2, '["first", "second", "third", {"in": "side"}]', 2, NULL, 'two'),
  (3, NULL, 3, '{"a b": 1, "quote\\"d": 2, "": 3, "é": 4}', NULL);
UPDATE j SET a = JSON_SET(a, '$.k', 2) WHERE id = 1;
UPDATE j SET a = JSON_REPLACE(a, '$.deep.x.y', 'short'), n = 10 WHERE id = 1;
UPDATE j SET a = JSON_SET(a, '$.list[1]', 'two', '$.list[3]', 4), b = JSON_SET(b, '$.new', JSON_OBJECT('p', 1.5)) WHERE id = 1;
UPDATE j SET a = JSON_REMOVE(a, '$.list[0]') WHERE id = 1;
UPDATE j SET a = JSON_REMOVE(a, '$.deep'), b = '{"whole": "value"}' WHERE id = 1;
UPDATE j SET a = JSON_ARRAY_INSERT(a, '$[1]', 'inserted') WHERE id = 2;
UPDATE j SET a = JSON_SET(a, '$[4].in', CAST('2024-02-29' AS DATE), '$[0]', CAST(1.50 AS DECIMAL(5,2))) WHERE id = 2;
UPDATE j SET b = JSON_SET(b, '$."a b"', 'x', '$."quote\\"d"', 'y', '$.""', 'z', '$."é"', 'w') WHERE id = 3;
UPDATE j SET a = JSON_SET(COALESCE(a, '{}'), '$.v', n), b = JSON_SET(b, '$.v', n), s = 'all' WHERE id > 0;
UPDATE j SET n = n + 1;
UPDATE j SET b = NULL WHERE id = 3;
UPDATE j SET a = JSON_SET(a, '$.k', 2) WHERE id = 1;
UPDATE j SET a = JSON_SET(a, '$.k', JSON_ARRAY(1, NULL, 'x')) WHERE id = 1;
DELETE FROM j WHERE id = 3;
CREATE TABLE many (id INT PRIMARY KEY, c1 JSON, c2 JSON, c3 JSON, c4 JSON, c5 JSON, c6 JSON, c7 JSON, c8 JSON, c9 JSON);
INSERT INTO many VALUES (1, '[1]', '[2]', '[3]', '[4]', '[5]', '[6]', '[7]', '[8]', '{"n": [9, 9, 9, 9, 9, 9]}');
UPDATE many SET c9 = JSON_SET(c9, '$.n[2]', 'nine'), c1 = '[11]', c4 = NULL;
