-- binlog_row_metadata=NO_LOG, row image MINIMAL then NOBLOB, binlog_checksum=NONE.
SET GLOBAL binlog_row_metadata = NO_LOG;
SET GLOBAL binlog_checksum = NONE;
SET GLOBAL binlog_row_image = MINIMAL;
-- session: main
SET timestamp = 1700000000;
CREATE DATABASE v;
USE v;
CREATE TABLE keyed (id INT UNSIGNED PRIMARY KEY, a INT, b VARCHAR(20), c BLOB, e ENUM('x','y'));
INSERT INTO keyed VALUES (1, 10, 'one', 'blob', 'x'), (2, 20, 'two', NULL, 'y');
INSERT INTO keyed (id, b) VALUES (3, NULL);
UPDATE keyed SET a = a + 1;
UPDATE keyed SET id = 4000000000 WHERE id = 3;
DELETE FROM keyed WHERE id = 1;
CREATE TABLE uniquely (a INT NOT NULL UNIQUE, b INT);
INSERT INTO uniquely VALUES (1, 1);
UPDATE uniquely SET b = NULL;
CREATE TABLE keyless (a INT, b INT DEFAULT 7);
INSERT INTO keyless () VALUES ();
UPDATE keyless SET a = 1;
DELETE FROM keyless;
SET SESSION binlog_row_image = NOBLOB;
UPDATE keyed SET a = 5 WHERE id = 2;
DELETE FROM keyed;
-- A statement of many events: only the last has STMT_END.
CREATE TABLE many (a INT PRIMARY KEY, b CHAR(40)) CHARSET latin1;
INSERT INTO many SELECT seq, REPEAT('z', 40) FROM seq_1_to_400;
-- Two tables and a trigger in one statement.
CREATE TABLE one (a INT PRIMARY KEY, x INT);
CREATE TABLE two (b INT PRIMARY KEY, y INT);
CREATE TABLE log_of_one (a INT, x INT);
CREATE TRIGGER one_update AFTER UPDATE ON one FOR EACH ROW INSERT INTO log_of_one VALUES (OLD.a, NEW.x);
INSERT INTO one VALUES (1, 1);
INSERT INTO two VALUES (1, 1);
UPDATE one JOIN two ON a = b SET x = 2, y = 2;
-- The same table id stands for another definition after a DDL.
ALTER TABLE one ADD COLUMN first_now CHAR(3) FIRST;
INSERT INTO one VALUES ('new', 2, 2);
