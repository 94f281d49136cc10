-- Every shape of an event group: transactional or not, DDL, XA, two domains, statement format, LOAD DATA.
-- session: main
SET timestamp = 1700000000;
CREATE DATABASE v;
USE v;
CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(20)) ENGINE=InnoDB;
CREATE TABLE m (a INT PRIMARY KEY) ENGINE=MyISAM;
BEGIN;
INSERT INTO t VALUES (1, 'kept');
SAVEPOINT s;
INSERT INTO t VALUES (2, 'rolled back');
ROLLBACK TO s;
INSERT INTO t VALUES (3, 'kept');
COMMIT;
INSERT INTO m VALUES (1);
BEGIN;
INSERT INTO t VALUES (9, 'rolled back');
INSERT INTO m VALUES (2);
ROLLBACK;
CREATE TABLE c ENGINE=InnoDB SELECT * FROM t;
CREATE TABLE c0 ENGINE=InnoDB SELECT * FROM t WHERE a > 1000;
TRUNCATE c;
DROP TABLE c, c0;
-- Two prepared XA transactions with a commit between them.
XA START 'x1', 'branch', 7;
INSERT INTO t VALUES (11, 'xa');
XA END 'x1', 'branch', 7;
XA PREPARE 'x1', 'branch', 7;
-- session: other
USE v;
SET timestamp = 1700000001;
XA START 'x2';
INSERT INTO t VALUES (12, 'xa');
XA END 'x2';
XA PREPARE 'x2';
-- session: third
USE v;
SET timestamp = 1700000002;
INSERT INTO t VALUES (13, 'between');
-- session: main
XA COMMIT 'x1', 'branch', 7;
-- session: other
XA ROLLBACK 'x2';
-- session: main
XA START 'x3';
INSERT INTO t VALUES (14, 'one phase');
XA END 'x3';
XA COMMIT 'x3' ONE PHASE;
-- Another domain and another server id, a gap in the sequence.
SET SESSION gtid_domain_id = 7;
INSERT INTO t VALUES (21, 'domain 7');
SET SESSION server_id = 99;
INSERT INTO t VALUES (22, 'server 99');
SET SESSION gtid_seq_no = 1000;
INSERT INTO t VALUES (23, 'seq 1000');
SET SESSION gtid_domain_id = 0;
SET SESSION server_id = 1;
SET SESSION skip_replication = 1;
INSERT INTO t VALUES (24, 'skipped');
SET SESSION skip_replication = 0;
SET SESSION binlog_annotate_row_events = 0;
INSERT INTO t VALUES (25, 'no annotation');
-- Statement format: the context events, and a statement that only looks like a COMMIT.
SET SESSION binlog_format = STATEMENT;
CREATE TABLE s (a INT AUTO_INCREMENT PRIMARY KEY, b DOUBLE, c VARCHAR(50)) ENGINE=InnoDB;
SET @text = 'é', @int = 18446744073709551615, @decimal = -1.25, @real = 1e10, @nothing = NULL;
INSERT INTO s (b, c) VALUES (RAND(), CONCAT(@text, @int, @decimal, @real));
INSERT INTO s (c) VALUES (@nothing);
INSERT INTO s (c) VALUES (LAST_INSERT_ID());
INSERT INTO s (c) VALUES ('x') -- COMMIT
;
-- Rolled back with a non-transactional change in it: the group is logged and ends with ROLLBACK.
BEGIN;
INSERT INTO s (c) VALUES ('rolled back');
INSERT INTO m VALUES (3);
ROLLBACK;
SELECT 'a', 1, 'from a file' INTO OUTFILE '../load.txt';
LOAD DATA INFILE '../load.txt' IGNORE INTO TABLE s (c, b, @ignored);
SET SESSION binlog_format = ROW;
-- Two-phase ALTER: what counts is the COMMIT ALTER.
/*M!100802 SET SESSION binlog_alter_two_phase = 1 */;
ALTER TABLE t ADD COLUMN d INT;
/*M!100802 SET SESSION binlog_alter_two_phase = 0 */;
CREATE SEQUENCE q;
SELECT NEXTVAL(q);
CREATE USER someone IDENTIFIED BY 'secret';
DROP DATABASE v;
