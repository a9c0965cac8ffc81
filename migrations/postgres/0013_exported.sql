-- Whether runs that have ended are kept, however long they were, until an exporter has said that it has their events.
alter table namespaces add column keep_until_exported boolean not null default false;

-- Up to where each shard's events of a namespace are safely elsewhere, as an exporter has said. Not made from the log.
create table exported (
    namespace text collate "C" not null,
    shard smallint not null,
    position bigint not null,
    primary key (namespace, shard)
) with (fillfactor = 50);
