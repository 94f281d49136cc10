-- Several files: checksum CRC32, then NONE, then CRC32; each change of it and each FLUSH starts a new file.
-- session: main
SET timestamp = 1700000000;
CREATE DATABASE v;
CREATE TABLE v.t (a INT PRIMARY KEY);
INSERT INTO v.t VALUES (1);
FLUSH BINARY LOGS;
SET SESSION gtid_domain_id = 7;
INSERT INTO v.t VALUES (2);
SET GLOBAL binlog_checksum = NONE;
INSERT INTO v.t VALUES (3);
SET GLOBAL binlog_checksum = CRC32;
INSERT INTO v.t VALUES (4);
