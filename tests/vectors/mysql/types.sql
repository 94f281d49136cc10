-- Columns of MySQL tables, each next to what SELECT says.
-- session: a
CREATE DATABASE v;
USE v;
SET time_zone = '+00:00';
CREATE TABLE t (
  id INT PRIMARY KEY, ti TINYINT, tu TINYINT UNSIGNED, si SMALLINT, mi MEDIUMINT UNSIGNED, bi BIGINT UNSIGNED,
  f FLOAT, db DOUBLE, de DECIMAL(20,6), bt BIT(12), y YEAR, dt DATE, tm TIME(3), dtm DATETIME(6), ts TIMESTAMP(3) NULL,
  c CHAR(10), vc VARCHAR(300) CHARACTER SET latin1, tx TEXT, bn BINARY(4), vb VARBINARY(20), bl BLOB,
  en ENUM('a', 'b', 'ü'), st SET('x', 'y', 'z'), g GEOMETRY, inv INT INVISIBLE DEFAULT 5, gen INT GENERATED ALWAYS AS (id + 1) VIRTUAL);
INSERT INTO t (id, ti, tu, si, mi, bi, f, db, de, bt, y, dt, tm, dtm, ts, c, vc, tx, bn, vb, bl, en, st, g) VALUES
  (1, -128, 255, -2, 16777215, 18446744073709551615, 0.1, -1e308, -123.456, b'100000000001', 1901, '2024-02-29', '-838:59:58.999',
   '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.001', 'äb ', 'é€', '中😀', x'6100', x'00ff00', x'00', 'ü', 'x,z', ST_GeomFromText('POINT(1 2)', 4326)),
  (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2155, '1000-01-01', '00:00:00.001', '1000-01-01 00:00:00.000001', '1970-01-01 00:00:01', '', '', '', '', '', '', 1, '', ST_GeomFromText('LINESTRING(0 0,1 1)'));
UPDATE t SET ti = 5, tx = 'changed' WHERE id = 3;
DELETE FROM t WHERE id = 2;
