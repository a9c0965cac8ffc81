-- The lifecycles that users declare. A row never changes, and goes with its namespace: runs are pinned to versions.
create table lifecycles (
    namespace text not null,
    name text not null,
    version integer not null,                   -- from 1, dense
    at integer not null,
    principal text not null,                    -- who put it, as JSON
    source text not null,                       -- the declaration as it was written
    declaration text not null,                  -- what it declares, as JSON: commits read it
    digest integer not null,                    -- the first eight bytes of the SHA-256 of `name@version`, LF, `declaration`
    primary key (namespace, name, version)
) strict;
create index lifecycles_by_time on lifecycles (at);
create index lifecycles_by_name on lifecycles (namespace, name) where version = 1;
