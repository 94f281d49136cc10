-- Binary JSON: every kind of value, small and large offsets, numbers at their borders, texts that need escapes.
-- session: a
CREATE DATABASE v;
USE v;
SET sql_mode = '';
CREATE TABLE j (id INT AUTO_INCREMENT PRIMARY KEY, d JSON);
INSERT INTO j (d) VALUES
  (NULL), ('null'), ('true'), ('false'), ('[]'), ('{}'), ('""'), ('"a"'),
  ('0'), ('1'), ('-1'), ('32767'), ('32768'), ('-32768'), ('-32769'), ('65535'), ('65536'),
  ('2147483647'), ('2147483648'), ('-2147483648'), ('-2147483649'), ('4294967295'), ('4294967296'),
  ('9223372036854775807'), ('-9223372036854775808'), ('9223372036854775808'), ('18446744073709551615'), ('18446744073709551616');
INSERT INTO j (d) VALUES
  ('0.0'), ('-0.0'), ('1.0'), ('1.5'), ('0.1'), ('1e100'), ('1.7976931348623157e308'), ('5e-324'), ('-1e-7'), ('1e14'), ('1e15'),
  ('1e16'), ('1e17'), ('123456789012345680000'), ('0.001'), ('0.0001'), ('0.00001'), ('1e-5'), ('123456.789e3'), ('1e21'), ('1e22');
INSERT INTO j (d) VALUES
  ('{"b": 1, "a": 2, "": 3, "aa": 4, "é": 5}'),
  ('[1, [2, [3, [4, {"k": [null, true, false]}]]]]'),
  ('"quote \\" backslash \\\\ slash / tab \\t newline \\n return \\r bell \\u0007 back \\b feed \\f"'),
  ('"\\u00e9\\u4e2d\\ud83d\\ude00\\u007f\\u0080\\u0000"'),
  ('{"a\\"b\\n": "x"}'),
  ('[65535, -32768, 65536, 1.25, "s", {"n": null}]');
INSERT INTO j (d) VALUES
  (JSON_ARRAY(CAST(1.10 AS DECIMAL(10,2)), CAST(-0.5 AS DECIMAL(3,1)), CAST(12345678901234567890123456789.123456789 AS DECIMAL(40,9)))),
  (JSON_ARRAY(CAST('2024-02-29' AS DATE), CAST('2024-02-29 23:59:59' AS DATETIME), CAST('2024-02-29 23:59:59.123456' AS DATETIME(6)))),
  (JSON_ARRAY(CAST('-838:59:59' AS TIME), CAST('00:00:00.000001' AS TIME(6)), CAST('-00:00:00.5' AS TIME(1)))),
  (JSON_ARRAY(TIMESTAMP('2038-01-19 03:14:07'), FROM_UNIXTIME(1))),
  (JSON_OBJECT('d', CAST('0000-00-00' AS DATE))),
  (JSON_ARRAY(x'00ff', CAST('abc' AS BINARY), b'1010', REPEAT(x'01', 100))),
  (JSON_ARRAY(ST_GeomFromText('POINT(1 2)'), CAST(2024 AS YEAR))),
  (CAST(x'6162' AS JSON)),
  (CAST(CAST('2024-01-01' AS DATE) AS JSON)),
  (CAST(CAST(7.0 AS DECIMAL(5,1)) AS JSON)),
  (JSON_ARRAY(CAST(18446744073709551615 AS UNSIGNED), CAST(-1 AS SIGNED), 3.14e0, TRUE, 1 = 2));
INSERT INTO j (d) VALUES
  (JSON_ARRAY(REPEAT('x', 127), REPEAT('y', 128)));
INSERT INTO j (d) SELECT CONCAT('[', REPEAT('[', 98), REPEAT(']', 98), ']');
CREATE TABLE two (a JSON, n INT, b JSON NOT NULL);
INSERT INTO two VALUES ('{"x": 1}', 5, '[1]'), (NULL, NULL, '"only b"');
UPDATE two SET b = '[2]', a = '3' WHERE n = 5;
DELETE FROM two WHERE n IS NULL;
