package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The statements are those of `runledger bench --versus`, whose crate says why they are as they are.
const (
	schemaStatement = `-- peers.schema
create schema if not exists runledger_bench;
create table if not exists runledger_bench.druns (
    run_id text collate "C" primary key,
    task_thread_id text,
    status text not null,
    revision int not null,
    started_at timestamptz not null default now(),
    completed_at timestamptz,
    metadata jsonb
) with (fillfactor = 85);
create index if not exists druns_task_thread_id_idx on runledger_bench.druns (task_thread_id);
create table if not exists runledger_bench.devents (
    id bigserial primary key,
    run_id text collate "C" not null,
    revision int not null,
    at timestamptz not null default now(),
    event jsonb not null,
    unique (run_id, revision)
)`

	startStatement = `-- peers.start
with i as (
    insert into druns (run_id, task_thread_id, status, revision, metadata)
    values ($1, $2, 'RUNNING', 1, $3::text::jsonb)
    on conflict do nothing
    returning run_id)
insert into devents (run_id, revision, event) select run_id, 1, '{"type": "started", "agent": "agent-1"}' from i`

	completeStatement = `-- peers.complete
with u as (
    update druns set status = 'COMPLETED', revision = revision + 1, completed_at = now()
    where run_id = $1 and status = 'RUNNING'
    returning run_id, revision)
insert into devents (run_id, revision, event) select run_id, revision, '{"type": "completed"}' from u`

	lookStatement = `-- peers.look
select status, revision from druns where run_id = $1 for update`

	insertRunStatement = `-- peers.insert_run
insert into druns (run_id, task_thread_id, status, revision, metadata)
values ($1, $2, 'RUNNING', 1, $3::text::jsonb)`

	completeRunStatement = `-- peers.complete_run
update druns set status = 'COMPLETED', revision = $2, completed_at = now() where run_id = $1`

	insertEventStatement = `-- peers.insert_event
insert into devents (run_id, revision, event) values ($1, $2, $3::text::jsonb)`
)

var errNotWritten = errors.New("a transition was not written: another one came between")

// oneStatement sends one transition a statement, which checks, writes and commits by itself.
type oneStatement struct {
	pool     *pgxpool.Pool
	metadata string
}

// chatty sends one transition a transaction: begin, look, write the run, write the event, commit.
type chatty struct {
	pool     *pgxpool.Pool
	metadata string
}

func measureSQL(ctx context.Context, set *flag.FlagSet, arguments []string) (Report, error) {
	var plan Plan
	plan.Flags(set, "connections that the callers share, at most as many as there are callers")
	database := set.String("database", "", "the Postgres that is written to, in a schema runledger_bench of its own")
	manner := set.String("manner", "one-statement", "one-statement, or chatty: five round trips a transition")
	_ = set.Parse(arguments)

	plan.Connections = min(plan.Connections, plan.Callers)
	pool, err := connected(ctx, *database, plan.Connections)
	if err != nil {
		return Report{}, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, schemaStatement); err != nil {
		return Report{}, err
	}
	work := NewWork()
	var sender Sender
	switch *manner {
	case "one-statement":
		sender = oneStatement{pool, work.MetadataJSON()}
	case "chatty":
		sender = chatty{pool, work.MetadataJSON()}
	default:
		return Report{}, fmt.Errorf("--manner %s: one-statement or chatty", *manner)
	}
	load := plan.Begin()
	if err := load.Call(ctx, work, sender); err != nil {
		return Report{}, err
	}
	return load.Report(), nil
}

// connected gives a pool that keeps its connections and prepares each statement once on each.
func connected(ctx context.Context, database string, connections int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = int32(connections), int32(connections)
	config.ConnConfig.RuntimeParams["search_path"] = "runledger_bench, public"
	return pgxpool.NewWithConfig(ctx, config)
}

func (s oneStatement) Turn(ctx context.Context, work *Work, tally *Tally) error {
	run := work.Next()
	return startAndComplete(tally, func() error {
		return one(ctx, s.pool, startStatement, run.ID, run.TaskThreadID, s.metadata)
	}, func() error {
		return one(ctx, s.pool, completeStatement, run.ID)
	})
}

func (s chatty) Turn(ctx context.Context, work *Work, tally *Tally) error {
	run := work.Next()
	return startAndComplete(tally, func() error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			_, _, err := look(ctx, tx, run.ID)
			if !errors.Is(err, pgx.ErrNoRows) {
				return errors.Join(errNotWritten, err)
			}
			if err := one(ctx, tx, insertRunStatement, run.ID, run.TaskThreadID, s.metadata); err != nil {
				return err
			}
			return one(ctx, tx, insertEventStatement, run.ID, 1, `{"type": "started", "agent": "agent-1"}`)
		})
	}, func() error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			status, revision, err := look(ctx, tx, run.ID)
			if err != nil || status != "RUNNING" {
				return errors.Join(errNotWritten, err)
			}
			if err := one(ctx, tx, completeRunStatement, run.ID, revision+1); err != nil {
				return err
			}
			return one(ctx, tx, insertEventStatement, run.ID, revision+1, `{"type": "completed"}`)
		})
	})
}

// startAndComplete writes both transitions of a run. The wait for a connection is a part of each one's time.
func startAndComplete(tally *Tally, start, complete func() error) error {
	sent := time.Now()
	if err := start(); err != nil {
		return err
	}
	sent = tally.Answered(sent, 1, 0)
	if err := complete(); err != nil {
		return err
	}
	tally.Answered(sent, 1, 1)
	return nil
}

// A writer is a transaction, or a pool whose statements commit by themselves.
type writer interface {
	Exec(ctx context.Context, statement string, arguments ...any) (pgconn.CommandTag, error)
}

func look(ctx context.Context, tx pgx.Tx, runID string) (status string, revision int, err error) {
	err = tx.QueryRow(ctx, lookStatement, runID).Scan(&status, &revision)
	return status, revision, err
}

// one writes one row, or says that it did not.
func one(ctx context.Context, to writer, statement string, arguments ...any) error {
	written, err := to.Exec(ctx, statement, arguments...)
	if err == nil && written.RowsAffected() != 1 {
		return errNotWritten
	}
	return err
}
