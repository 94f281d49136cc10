-- Optional metadata of table maps (binlog_row_metadata=FULL) and every column type, row image FULL, checksum CRC32.
SET GLOBAL binlog_row_metadata = FULL;
-- session: main
SET sql_mode = 'ALLOW_INVALID_DATES';
SET timestamp = 1700000000.123456;
CREATE DATABASE `v.1`;
USE `v.1`;

-- SIGNEDNESS counts YEAR and not BIT, most significant bit first.
CREATE TABLE signs (a INT, y YEAR, b BIT(3), d DECIMAL(9,2) UNSIGNED, t TINYINT UNSIGNED, f FLOAT UNSIGNED, g DOUBLE,
  h BIGINT UNSIGNED, i MEDIUMINT, j SMALLINT UNSIGNED);
INSERT INTO signs VALUES (-1, 2155, b'101', 9999999.99, 200, 1.5, -1e308, 18446744073709551615, -8388608, 65535);
INSERT INTO signs (a) VALUES (NULL);

-- DEFAULT_CHARSET: the index counts character columns only; ENUM and SET have their own.
CREATE TABLE charsets (n INT, a VARCHAR(10) CHARSET utf8mb4, x INT, b CHAR(5) CHARSET latin1, c TEXT CHARSET utf8mb4,
  d VARCHAR(7) CHARSET utf8mb4, e ENUM('a','b,c','','d''e') CHARSET latin1, f SET('u','v','w') CHARSET utf8mb4,
  g VARBINARY(300), h BLOB, j JSON, k GEOMETRY) DEFAULT CHARSET utf8mb4;
INSERT INTO charsets VALUES (1, 'é€😀', 2, 'ab  ', REPEAT('x', 300), 'c', 'b,c', 'u,w', 0x00ff, REPEAT('y', 700), '{"a": 1}',
  ST_GeomFromText('POINT(1 2)', 4326));
-- Many collations: COLUMN_CHARSET is the shorter form.
CREATE TABLE collations (a CHAR(1) CHARSET latin1, b CHAR(1) CHARSET utf8mb4, c CHAR(1) CHARSET ucs2, d CHAR(1) CHARSET gbk,
  e ENUM('é','ü') CHARSET latin1, f SET('é','ü') CHARSET utf8mb4 COLLATE utf8mb4_bin, g ENUM('ж') CHARSET cp1251);
INSERT INTO collations VALUES ('é', 'é', 'é', '一', 'ü', 'é,ü', 'ж');
/*M!101001 CREATE TABLE uca1400 (a VARCHAR(10) COLLATE utf8mb4_uca1400_ai_ci, b VARCHAR(10) CHARSET latin1) */;
/*M!101001 INSERT INTO uca1400 VALUES ('x', 'y') */;

-- Keys: SIMPLE_PRIMARY_KEY in key order, PRIMARY_KEY_WITH_PREFIX with column index and prefix length.
CREATE TABLE simple_key (a INT, b INT NOT NULL, c VARCHAR(5) NOT NULL, PRIMARY KEY (c, b));
INSERT INTO simple_key VALUES (1, 2, 'x'), (3, 4, 'y');
CREATE TABLE prefix_key (a INT, b INT, x1 INT, x2 INT, x3 INT, c TEXT, PRIMARY KEY (a, c(2))) CHARSET latin1;
INSERT INTO prefix_key VALUES (1, 2, 3, 4, 5, 'abc');
UPDATE prefix_key SET b = 3;
DELETE FROM prefix_key;

-- STRING metadata with hidden length bits, both lengths of prefixes, packed ENUM and SET.
CREATE TABLE strings (a CHAR(63) CHARSET utf8mb4, b CHAR(64) CHARSET utf8mb4, c CHAR(100) CHARSET utf8mb4,
  d CHAR(255) CHARSET utf8mb4, e BINARY(5), f BINARY(255), g VARCHAR(63) CHARSET utf8mb4, h VARCHAR(64) CHARSET utf8mb4,
  i SET('1','2','3','4','5','6','7','8','9'), j SET('1','2','3','4','5','6','7','8','9','10','11','12','13','14','15','16','17'),
  k INET6 /*M!100700 , l UUID */ /*M!101000 , m INET4 */);
INSERT INTO strings (a, b, c, d, e, f, g, h, i, j, k)
  VALUES ('a', 'b', 'é', 'x', 0x6100620000, 'q', '€', '€', '1,9', '17', '::');
/*M!100700 UPDATE strings SET l = '123e4567-e89b-12d3-a456-426655440000' */;
/*M!101000 UPDATE strings SET m = '10.0.0.0' */;

CREATE TABLE numbers (a DECIMAL(10,4), b DECIMAL(18,9), c DECIMAL(5,0), d DECIMAL(4,4), e DECIMAL(65,30), f BIT(1), g BIT(10),
  h BIT(64), i FLOAT, j DOUBLE);
INSERT INTO numbers VALUES (-0.0001, -1.1, -12345, -0.5, -1.5, b'1', b'1000000011', 0x8000000000000001, -0.1, 1e308),
  (123456.7890, 123456789.987654321, 7, 0.0102, 1, b'0', b'1', 1, 1.5, 0), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);

CREATE TABLE times (a DATE, b TIME, c TIME(1), d TIME(3), e TIME(6), f DATETIME, g DATETIME(3), h DATETIME(6),
  i TIMESTAMP NULL, j TIMESTAMP(2) NULL, k TIMESTAMP(6) NULL, y YEAR);
SET time_zone = '+00:00';
INSERT INTO times VALUES ('2024-02-29', '-838:59:59', '-00:00:00.1', '12:34:56.789', '-00:00:00.000001',
    '2024-02-29 23:59:59', '2024-02-29 23:59:59.123', '9999-12-31 23:59:59.999999',
    '2038-01-19 03:14:07', '2024-02-29 12:00:00.25', '2024-02-29 12:00:00.000001', 2155),
  ('0000-00-00', '00:00:01', '10:11:12.5', '-00:00:00.001', '-838:59:59.999999',
    '0000-00-00 00:00:00', '2024-02-31 00:00:00', '2024-00-00 00:00:00', 0, 0, 0, 0);

CREATE TABLE compressed_columns (a VARCHAR(500) COMPRESSED, b BLOB COMPRESSED);
INSERT INTO compressed_columns VALUES (REPEAT('a', 300), 'abc');
/*M!110701 CREATE TABLE vectors (v VECTOR(3) NOT NULL) */;
/*M!110701 INSERT INTO vectors VALUES (VEC_FromText('[1,-2,0.5]')) */;

-- Hidden columns, generated columns, a name of three-byte characters, and a wide table.
CREATE TABLE versioned (a INT PRIMARY KEY, b INT AS (a + 1) STORED, c INT AS (a + 2), d INT INVISIBLE) WITH SYSTEM VERSIONING;
INSERT INTO versioned (a) VALUES (1);
UPDATE versioned SET d = 5;
DELETE FROM versioned;
SET @wide = (SELECT GROUP_CONCAT('c', seq, ' TINYINT') FROM seq_1_to_300);
EXECUTE IMMEDIATE CONCAT('CREATE TABLE `', REPEAT('名', 48), '` (', @wide, ')');
EXECUTE IMMEDIATE CONCAT('INSERT INTO `', REPEAT('名', 48), '` (c1, c300) VALUES (1, -1)');
