-- Binary JSON with four-byte offsets: documents of more than 64 KiB, an inlined 32-bit number among the values.
-- session: a
CREATE DATABASE v;
USE v;
CREATE TABLE j (id INT AUTO_INCREMENT PRIMARY KEY, d JSON);
INSERT INTO j (d) VALUES
  (JSON_OBJECT('big', REPEAT('z', 66000), 'small', 1, 'number', 2147483647, 'more', 65536, 'inner', JSON_ARRAY(70000, 'x'))),
  (CONCAT('["', REPEAT('y', 66000), '", ', REPEAT('12345, ', 300), '70000, true, null, -5, 65535, 4000000000, -2147483648]'));
