-- A column type that only MySQL has.
-- session: a
CREATE DATABASE v;
USE v;
CREATE TABLE e (id INT PRIMARY KEY, v VECTOR(3));
INSERT INTO e VALUES (1, STRING_TO_VECTOR('[1, -2, 0.5]')), (2, NULL);
