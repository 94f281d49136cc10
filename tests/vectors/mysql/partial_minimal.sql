-- JSON diffs whose before image lacks the column: the last UPDATE cannot be told.
SET GLOBAL binlog_row_value_options = 'PARTIAL_JSON';
SET GLOBAL binlog_row_image = 'MINIMAL';
-- session: a
CREATE DATABASE v;
USE v;
CREATE TABLE j (id INT PRIMARY KEY, a JSON, n INT, b JSON, s VARCHAR(10));
INSERT INTO j VALUES (1, '{"k": "a value that is long enough to be worth it"}', 1, '{"k": "a value that is long enough to be worth it"}', 'one');
UPDATE j SET s = 'minimal', n = 77;
UPDATE j SET b = JSON_SET(b, '$.k', 2);
