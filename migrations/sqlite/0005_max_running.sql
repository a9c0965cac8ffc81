-- Which runs count towards what claims allow of a label's value (max_running). What has ended counts no more, and is
-- forgotten by the next claim; a row with nothing that counts is deleted in time.
create table max_running (
    namespace text not null,
    label text not null,
    value text not null,
    runs text not null,                         -- {run_id: shard} as JSON; counts while `active` has it
    changed_at integer not null,
    primary key (namespace, label, value)
) strict, without rowid;
