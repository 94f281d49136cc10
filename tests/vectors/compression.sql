-- log_bin_compress: compressed statements and row images beside plain ones.
SET GLOBAL log_bin_compress = ON;
SET GLOBAL log_bin_compress_min_len = 256;
-- session: main
SET timestamp = 1700000000;
CREATE DATABASE v;
CREATE TABLE v.t (a INT PRIMARY KEY, b LONGTEXT) CHARSET latin1;
BEGIN;
INSERT INTO v.t VALUES (1, 'short'), (2, 'short');
INSERT INTO v.t VALUES (3, REPEAT('long ', 100)), (4, REPEAT('x', 70000));
UPDATE v.t SET b = CONCAT(b, '!') WHERE a > 2;
DELETE FROM v.t WHERE a > 2;
COMMIT;
EXECUTE IMMEDIATE CONCAT('CREATE TABLE v.c (a INT COMMENT ''', REPEAT('long ', 100), ''')');
