package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/semaphore"
)

// The settings of River's own benchmark, which its authors found to be the fastest.
const (
	fetchCooldown     = 2 * time.Millisecond
	fetchPollInterval = 20 * time.Millisecond
	workersMax        = 2_000
)

// Jobs that wait or are worked, at most: enough that a fetch always finds as many as it takes.
const backlogMax = 20_000

// job is what a run is there: its arguments are the run's metadata.
type job struct {
	RunID        string         `json:"run_id"`
	TaskThreadID string         `json:"task_thread_id"`
	Metadata     map[string]any `json:"metadata"`
}

func (job) Kind() string { return "run" }

// inserted sends the jobs of one or more runs at once. River's workers, in this process, do the rest.
type inserted struct {
	client *river.Client[pgx.Tx]
	batch  int
	room   *semaphore.Weighted
}

func measureRiver(ctx context.Context, set *flag.FlagSet, arguments []string) (Report, error) {
	var plan Plan
	plan.Flags(set, "connections that inserters and workers share")
	database := set.String("database", "", "the Postgres that has the queue")
	batch := set.Int("batch", 1, "jobs that are inserted at once")
	_ = set.Parse(arguments)

	pool, err := connected(ctx, *database, plan.Connections)
	if err != nil {
		return Report{}, err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return Report{}, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return Report{}, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[job]) error { return nil }))
	client, err := river.NewClient(driver, &river.Config{
		FetchCooldown:     fetchCooldown,
		FetchPollInterval: fetchPollInterval,
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workersMax}},
		Workers:           workers,
	})
	if err != nil {
		return Report{}, err
	}
	// A job's end is known here once it was written. More events than this are never on their way: none is dropped.
	ends, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: 2 * backlogMax, Kinds: []river.EventKind{
		river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobCancelled}})
	defer unsubscribe()
	if err := client.Start(ctx); err != nil {
		return Report{}, err
	}

	load, room := plan.Begin(), semaphore.NewWeighted(backlogMax)
	counted := make(chan error, 1)
	go func() { counted <- count(ends, load.Tally(), room) }()
	err = load.Call(ctx, NewWork(), inserted{client, *batch, room})
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err = errors.Join(err, client.Stop(stopping))
	unsubscribe()
	if err == nil {
		// The queue is left as it was found: empty.
		_, err = pool.Exec(ctx, "-- peers.empty\ndelete from river_job where state = 'available'")
	}
	if err := errors.Join(err, <-counted); err != nil {
		return Report{}, err
	}
	return load.Report(), nil
}

// count notes each job's end: its fetch and its completion are two transitions.
func count(ends <-chan *river.Event, tally *Tally, room *semaphore.Weighted) error {
	var failed error
	for end := range ends {
		if end.Kind != river.EventKindJobCompleted {
			failed = fmt.Errorf("job %d: %s", end.Job.ID, end.Kind)
		}
		tally.Did(time.Now(), 2, 1)
		room.Release(1)
	}
	return failed
}

func (i inserted) Turn(ctx context.Context, work *Work, tally *Tally) error {
	if err := i.room.Acquire(ctx, int64(i.batch)); err != nil {
		return err
	}
	jobs := make([]river.InsertManyParams, i.batch)
	for place := range jobs {
		run := work.Next()
		jobs[place].Args = job{run.ID, run.TaskThreadID, work.Metadata()}
	}
	sent := time.Now()
	var err error
	if i.batch == 1 {
		_, err = i.client.Insert(ctx, jobs[0].Args, nil)
	} else {
		_, err = i.client.InsertMany(ctx, jobs)
	}
	if err != nil {
		return err
	}
	tally.Answered(sent, i.batch, 0)
	return nil
}
