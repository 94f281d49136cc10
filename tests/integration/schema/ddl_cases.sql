-- Statements that MariaDB servers take and write to their binlogs, one a line; they build on each other.

create database t charset latin1
use t
create table ty (a enum('a','b ') charset binary, b char(5) charset binary, c text charset binary, d text(300), e varchar(2000) compressed, f char byte, g long, h json, i nchar(3), j year(2), k float(30), l float(7,3), m timestamp, n serial, o tinyint(1) zerofill, p blob(10) compressed, q boolean default true, r long varbinary)
create table ty2 (b inet6, c point, d geometry, e real, f dec, g bit, h varchar(10) charset utf8, i int(5) unsigned zerofill, j double(5,2) unsigned, k time(3), l set('x','y z','it''s'), m int1, n int2, o int3, p int4, q int8, r middleint, s float4, t float8, u dec(5), v numeric(7,2), w fixed(4,1) zerofill, x bit(5), y double precision, z character varying(10))
create table ty3 (a text charset latin1, b varchar(10) charset latin1, c enum('a') charset latin1, d json, e tinytext charset latin1, f blob, g varchar(200) charset latin1, h mediumtext, i longtext charset utf8mb3, j text charset utf8mb3, k tinytext charset ucs2, l char(10), m varchar(20000) compressed)
alter table ty3 drop column m, convert to character set utf8mb4
create table ty4 (a national varchar(10), b national char(5), c nchar varchar(4), d nvarchar(3), e national character varying(3), f long varchar, g long char varying, h varchar(10) binary, i char(3) ascii, j char(3) unicode, k varchar(5) charset latin1 collate latin1_bin, l varchar(5) collate utf8mb4_bin, m text(70000), n text(10), o blob(300), p int signed, q date, r datetime, s datetime(6), t timestamp(2) null, u mediumtext, v tinyblob, w varbinary(20), x binary, y char, z longblob)
create table k (a text, b varchar(900), c varchar(300) charset utf8mb4, d int, unique(a), unique(b), unique(c), unique(d))
create table d (a int default 5, b int default -5.5 not null, c varchar(20) default 'a,b;c)' comment 'x', d double default 1.5e-3 unique, e double default 1e5 not null, f timestamp default current_timestamp() on update current_timestamp(), g datetime(3) default now(3) on update now(3) comment 'it''s ; "q" \\ \n', h int default (1+(2)) , i varchar(50) default concat('a',(5)) collate latin1_bin, j int default case when 1 then 2 else case 3 when 4 then 5 end end not null, k bit(8) default b'101', l varbinary(3) default x'4142' comment "dq", m int as (a+b) virtual invisible, n int generated always as (a) persistent unique, o int check (o > 5 and o < 10) , p int not null check (p <> 7), q date default date'2020-01-01', r varchar(5) default N'x', s varchar(5) default _latin1'x', t double default .5, u double default 1., v decimal(5,2) default +1.25, w int invisible default 5, primary key (a, b), check (a > 0), constraint cc check (b < 5), key (c), unique u1 (d, e), fulltext ft (c))
create table par (id int primary key auto_increment)
create table ch (a int primary key, b int, p int references par(id) on delete cascade on update set null, constraint fk1 foreign key (b) references par (id) on delete set null on update cascade, index ib (b) comment 'k', index using btree (p))
create or replace table d2 like d
create table lk (like ty2)
create table sel select 1 as a, 'x' as b, now() as c, 1.5 as d, cast('x' as char charset utf8mb4) as e
create or replace table sel (x int, y varchar(10) charset ucs2) select 5 as x, 7 as z
create table v (a int) with system versioning
create table v2 (a int, rs timestamp(6) generated always as row start, re timestamp(6) generated always as row end, period for system_time(rs,re)) with system versioning
create table v3 (a int, b int without system versioning) with system versioning
create table v4 (a int with system versioning, b int)
create table v5 like v2
set system_versioning_alter_history=keep
alter table v add column b int after a, add unique key (b)
alter table v drop system versioning
alter table v add system versioning
alter table v3 add column c text unique
create sequence s start with 100 increment 5 minvalue 1 cache 10
create table sl like s
alter sequence s restart 50
create table p1 (a int, b int, primary key (a)) partition by range (a) (partition p0 values less than (10) comment = 'x', partition p1 values less than maxvalue)
alter table p1 drop partition p0
alter table p1 add column c int partition by hash(a) partitions 3
alter table p1 remove partitioning
alter table p1 add d int, order by a, b
create table `we``ird.na me` (`a``b` int, `c.d` varchar(5), `e"f` int, `select` int, `ünïcödé` int, `key` int primary key) comment='semi;colon "x" `y` '
alter table `we``ird.na me` change `a``b` `key2` bigint unsigned after `c.d`, rename column `e"f` to `from`
rename table `we``ird.na me` to w, k to `k.k`
alter table w rename to w2, add column z int first
alter table w2 modify `key` smallint unsigned zerofill, modify `c.d` varchar(5) charset utf8mb4 first
alter table w2 add (a1 int, a2 text, unique uk (a1)), drop column `from`, default charset ucs2
alter table w2 add column a3 varchar(10), add column if not exists a2 blob, drop column if exists nix
alter table w2 drop primary key, add primary key (a1)
alter table w2 drop key uk, alter a1 set default 5, alter column a2 drop default, engine=aria, comment='x', row_format=dynamic
alter online table w2 comment = 'collate x charset y', algorithm=copy, lock=shared
alter ignore table w2 add index (a3), force
create index i2 on w2 (a3)
drop index i2 on w2
truncate table w2
drop table if exists w2, nix, `k.k`
create table if not exists sel (zzz int)
/*!50000 create table exe (a int unsigned) */
create table exe2 (a int /*!50000 unsigned */, b varchar(5) /*!99999 nonsense */ /*M!100100 comment 'm' */)
set statement max_statement_time=100 for create table ss (a int)
set sql_mode='ansi_quotes'
create table "an""si" ("a b" int, b varchar(5) default 'x' comment 'y"z')
set sql_mode='no_backslash_escapes'
create table nb (a varchar(5) default '\' comment 'a\', b enum('\','b\\'))
set sql_mode='real_as_float'
create table rf (a real, b real(5,2))
set sql_mode=''
create table big (a varchar(70000), c varbinary(70000), e varchar(20000) charset utf8mb4)
create table big2 (a varchar(16000) charset utf8mb4)
set sql_mode=default
create database d2 collate utf8mb4_bin
create table d2.x (a varchar(10), b text collate latin1_bin)
alter database d2 charset ucs2
create table d2.y (a varchar(10), b text charset latin1, d varchar(3) collate utf8mb4_bin)
alter table d2.x rename t.xx
create table d2.xx like t.xx
rename table d2.y to t.y1, d2.xx to d2.zz
drop database d2
create temporary table tt (a int)
create table tt (b int)
create table tl like tt
drop temporary table tt
create view vv as select * from sel
create or replace view vv as select 5 as q
drop view vv
create procedure pp() create table inproc (a int, b varchar(10))
call pp()
execute immediate 'create table ei (a int default ?)' using 5
begin not atomic declare x int default 5; create table cb (a int); alter table cb add b text; end
create trigger tr before insert on cb for each row set new.a = 5
create or replace user 'x'@'localhost' identified by 'create table'
flush tables
analyze table cb
optimize table cb
create table g (a int, b int as (a + 1) stored comment 'x', c int generated always as (b * 2) virtual, d json check (json_valid(d)), e varchar(10) charset utf8mb4 as (concat(a, 'x,y')) persistent)
create table u (a int unique, b int primary key comment 'x')
create table uu (a int unique key, b int primary key comment 'x', unique index uu using hash (b), unique (a) comment 'x')
create table q (a int not null default 5 check(a>3), b timestamp not null default '2020-01-01 00:00:00', c timestamp, d timestamp null)
set explicit_defaults_for_timestamp=1-@@explicit_defaults_for_timestamp
create table q2 (b timestamp not null default '2020-01-01 00:00:00', c timestamp, d timestamp null)
create table mm (a int, b int, c int, d int)
alter table mm modify a bigint after c, modify c smallint first, add e int after a, add f int, change d dd int after e
alter table mm change a b int, change b a bigint
alter table mm rename column a to b, rename column b to a
alter table mm modify column if exists zz int, change if exists yy y int, drop column if exists f, add column if not exists (a int, g int)
alter table mm add constraint primary key (a, b), add constraint uq unique (c), add foreign key (a) references par(id)
alter table mm drop foreign key mm_ibfk_1, drop constraint uq, rename to mm2
alter table mm2 wait 5 add h int
alter table mm2 nowait add i enum('ä','ö') charset utf8mb4 first
create table if not exists mm3 as select * from mm2
create or replace table mm3 engine=myisam charset=utf8mb4 as select a from mm2 union select b from mm2
create table cs1 (a varchar(10), b text, c enum('x')) charset=utf8
alter table cs1 charset utf8mb4, add d varchar(10)
alter table cs1 convert to character set utf8mb4 collate utf8mb4_unicode_ci, add e varchar(5)
alter table cs1 convert to character set binary
create table cs2 (a varchar(10)) collate utf8mb4_unicode_ci
alter table cs2 modify a varchar(10) charset latin1, add b text collate utf8mb4_bin
create table eng (a int, b varchar(5)) engine=aria transactional=0 page_checksum=1 comment='with system versioning' max_rows=100 union=()
drop table t.eng, t.cs2
create table ch1 (a char(0), b varchar(0), c binary(0), d varbinary(0), e bit(64), f decimal(65,30), g decimal(0,0), h timestamp(6) default 0, i set('a','b') charset ucs2 default 'a,b')

create table cv (a text charset latin1, b text, c varchar(9), d enum('x') unique)
alter table cv add e text charset gbk, modify b text charset gbk, add column if not exists c int primary key, convert to character set utf8mb4
alter table cv add column if not exists d int primary key, add column if not exists a int unique
rename table cv to cw, ch to cv, cw to ch
create table cb2 (a enum('x') charset binary, b char(3))
alter table cb2 convert to character set utf8mb4
create table ec (x int /*!120500 unsigned */, y int /*M!120500 unsigned */, z int /*!50701 unsigned */, w int /*!100000 unsigned */)
alter table ec add new int after moved, change x moved text after z, drop y

-- since 10.7
create table n1 (a uuid, b inet4, d text charset latin1) charset utf8mb3
create table p2 (a int) partition by range (a) (partition p0 values less than (10), partition p1 values less than (20))
alter table p2 convert partition p0 to table p3
create table p4 (a int)
alter table p2 convert table p4 to partition p9 values less than (90)

-- since 10.10
create table n4 (a varchar(10), b text collate uca1400_as_cs) charset utf8mb4 collate uca1400_ai_ci
alter table n4 convert to character set utf8mb3 collate uca1400_ai_ci, comment='x'

-- since 11.5
create sequence n3 as smallint unsigned
alter sequence n3 as int

-- since 11.7
create table n2 (a int primary key, v vector(5) not null, vector index vi (v))
alter table n2 add column w vector(2) default null after a
