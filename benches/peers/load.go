package main

import (
	"context"
	"flag"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// How long what was begun in time may take to end. What takes longer hangs, and is an error.
const grace = 30 * time.Second

// A Sender takes runs from their start to their end. How it sends their transitions is its own matter: one a call, one a
// statement, many at once.
type Sender interface {
	// Turn takes the next runs of the work to their end, and tells the tally of each answer.
	Turn(ctx context.Context, work *Work, tally *Tally) error
}

// A Plan says who calls, and for how long.
type Plan struct {
	Callers, Connections, Seconds, WarmUp int
}

// A Load calls in a closed loop: each caller calls again as soon as it was answered.
type Load struct {
	plan       Plan
	begin, end time.Time
	mutex      sync.Mutex
	tallies    []*Tally
}

// A Tally counts the answers that one caller gets in the time that is measured.
type Tally struct {
	begin, end        time.Time
	transitions, runs int
	waits             []time.Duration
}

// A Report is what came of a load.
type Report struct {
	Of                   string  `json:"of"`
	Callers              int     `json:"callers"`
	Connections          int     `json:"connections"`
	RunsPerSecond        float64 `json:"runs_per_second"`
	TransitionsPerSecond float64 `json:"transitions_per_second"`
	P50                  float64 `json:"p50_ms"`
	P99                  float64 `json:"p99_ms"`
}

// Flags adds those that every command has.
func (p *Plan) Flags(set *flag.FlagSet, connections string) {
	set.IntVar(&p.Callers, "callers", 512, "callers, each of which calls again once it was answered")
	set.IntVar(&p.Connections, "connections", 8, connections)
	set.IntVar(&p.Seconds, "seconds", 10, "time to measure, in seconds")
	set.IntVar(&p.WarmUp, "warm-up", 3, "time to call before that, in seconds")
}

// Begin begins the warm-up.
func (p *Plan) Begin() *Load {
	begin := time.Now().Add(time.Duration(p.WarmUp) * time.Second)
	return &Load{plan: *p, begin: begin, end: begin.Add(time.Duration(p.Seconds) * time.Second)}
}

// Tally gives one more caller's.
func (l *Load) Tally() *Tally {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	tally := &Tally{begin: l.begin, end: l.end}
	l.tallies = append(l.tallies, tally)
	return tally
}

// Call lets the callers call until the time is over: they share the senders, and each ends what it began.
func (l *Load) Call(ctx context.Context, work *Work, senders ...Sender) error {
	ctx, cancel := context.WithDeadline(ctx, l.end.Add(grace))
	defer cancel()
	calling, ctx := errgroup.WithContext(ctx)
	for caller := range l.plan.Callers {
		sender, tally := senders[caller%len(senders)], l.Tally()
		calling.Go(func() error {
			for time.Now().Before(l.end) {
				if err := sender.Turn(ctx, work, tally); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return calling.Wait()
}

// Answered notes that what was sent at a time was answered now, and what it did. It gives the time of the answer.
func (t *Tally) Answered(sent time.Time, transitions, runs int) time.Time {
	now := time.Now()
	if t.Did(now, transitions, runs) {
		t.waits = append(t.waits, now.Sub(sent))
	}
	return now
}

// Did notes what was done at a time for which nobody waited, and gives whether it counts.
func (t *Tally) Did(at time.Time, transitions, runs int) bool {
	if at.Before(t.begin) || !at.Before(t.end) {
		return false
	}
	t.transitions += transitions
	t.runs += runs
	return true
}

// Report adds the tallies up. All who write to them have ended.
func (l *Load) Report() Report {
	var waits []time.Duration
	report := Report{Callers: l.plan.Callers, Connections: l.plan.Connections}
	seconds := l.end.Sub(l.begin).Seconds()
	for _, tally := range l.tallies {
		report.RunsPerSecond += float64(tally.runs) / seconds
		report.TransitionsPerSecond += float64(tally.transitions) / seconds
		waits = append(waits, tally.waits...)
	}
	slices.Sort(waits)
	at := func(share float64) float64 {
		if len(waits) == 0 {
			return 0
		}
		return float64(waits[int(share*float64(len(waits)-1))].Microseconds()) / 1000
	}
	report.P50, report.P99 = at(0.50), at(0.99)
	return report
}
