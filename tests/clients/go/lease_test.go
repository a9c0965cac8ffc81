// Work under a lease: what Start, Hold and Job promise.
package bridge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/bridge"
	pb "example.com/bridge/gen/runledger/v1"
)

// wait is work that does nothing until it is told to stop.
func wait(ctx context.Context, _ *bridge.Job) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestARunUnderALeaseIsRenewedUpdatedAndCompleted(t *testing.T) {
	ctx, calls, id := begin(t), &recorder{}, newID()
	client := connect(t, server, calls.option())
	err := bridge.Start(ctx, client, start(id), func(working context.Context, job *bridge.Job) error {
		for range 2 {
			before := get(t, ctx, client, id).Lease.ExpiresAt.AsTime()
			until(t, ctx, func() bool { return get(t, ctx, client, id).Lease.ExpiresAt.AsTime().After(before) })
		}
		request := &pb.UpdateRunRequest{Labels: map[string]string{"k": "v"}, Progress: &pb.Progress{Done: 1, Total: 2}}
		answer, err := job.Update(working, request)
		equal(t, must(t, answer, err).Run.Labels["k"], "v")
		equal(t, request.RequestId, "")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	run := get(t, ctx, client, id)
	equal(t, run.Status, pb.RunStatus_RUN_STATUS_COMPLETED)
	equal(t, run.Revision, 3)
	for _, beat := range calls.of("HeartbeatRun") {
		if beat.deadline > ttl.AsDuration()/3 {
			t.Errorf("a heartbeat had %v", beat.deadline)
		}
	}
}

func TestAHeartbeatThatFailsIsSentAgainAtOnce(t *testing.T) {
	// By the ttl alone, there would be one every 20 minutes.
	ctx, id := begin(t), newID()
	calls := &recorder{instead: func(method string, number int) error {
		if method == "HeartbeatRun" && number < 3 {
			return status.Error([]codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Internal}[number], "lost")
		}
		return nil
	}}
	client := connect(t, server, calls.option())
	request := start(id)
	request.LeaseTtl = durationpb.New(time.Hour)
	began := time.Now()
	err := bridge.Start(ctx, client, request, func(context.Context, *bridge.Job) error {
		until(t, ctx, func() bool { return len(calls.of("HeartbeatRun")) >= 4 })
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if pauses := time.Since(began); pauses < 1500*time.Millisecond {
		t.Errorf("three pauses took %v", pauses)
	}
}

func TestARequestToAbortReachesTheWork(t *testing.T) {
	ctx, id := begin(t), newID()
	client := connect(t, server)
	err := bridge.Start(ctx, client, start(id), func(working context.Context, job *bridge.Job) error {
		answer, err := client.RequestAbort(ctx, &pb.RequestAbortRequest{RunId: id, Reason: "the tab was closed"})
		must(t, answer, err)
		return wait(working, job)
	})
	if !errors.Is(err, bridge.ErrAbortRequested) {
		t.Error(err)
	}
	run := get(t, ctx, client, id)
	equal(t, run.Status, pb.RunStatus_RUN_STATUS_ABORTED)
	equal(t, run.ReasonCode, "ABORT_REQUESTED")
	equal(t, run.FailureReason, "the tab was closed")
}

func TestWorkThatIsDoneInSpiteOfARequestToAbortIsCompleted(t *testing.T) {
	ctx, id := begin(t), newID()
	client := connect(t, server)
	err := bridge.Start(ctx, client, start(id), func(working context.Context, job *bridge.Job) error {
		answer, err := client.RequestAbort(ctx, &pb.RequestAbortRequest{RunId: id})
		must(t, answer, err)
		_ = wait(working, job)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	equal(t, get(t, ctx, client, id).Status, pb.RunStatus_RUN_STATUS_COMPLETED)
}

// taken gives the run's lease away.
func taken(t *testing.T, ctx context.Context, client pb.RunServiceClient, run *pb.Run) *pb.Run {
	released, err := client.ReleaseRun(ctx, &pb.ReleaseRunRequest{RunId: run.RunId, LeaseEpoch: run.Lease.Epoch})
	must(t, released, err)
	claimed, err := client.ClaimRun(ctx, &pb.ClaimRunRequest{RunId: run.RunId, LeaseTtl: durationpb.New(time.Hour)})
	return must(t, claimed, err).Run
}

func TestALeaseThatSomebodyElseTookStopsTheWorkAndNothingIsReported(t *testing.T) {
	ctx, calls, id := begin(t), &recorder{}, newID()
	client, other := connect(t, server, calls.option()), connect(t, server)
	var theirs *pb.Run
	err := bridge.Start(ctx, client, start(id), func(working context.Context, job *bridge.Job) error {
		theirs = taken(t, ctx, other, job.Run)
		return wait(working, job)
	})
	refused(t, err, codes.FailedPrecondition, "LEASE_LOST")
	if lost := bridge.Detail[*pb.LeaseLostError](err); lost.GetLeaseEpoch() != 1 || lost.GetCurrentEpoch() <= 1 {
		t.Error(lost)
	}
	equal(t, get(t, ctx, other, id).Revision, theirs.Revision)
	equal(t, len(calls.ends()), 0)
}

func TestAnUpdateThatIsRefusedBecauseOfTheLeaseStopsTheWork(t *testing.T) {
	// No heartbeat tells: the next comes in 20 minutes.
	ctx, calls, id := begin(t), &recorder{}, newID()
	client, other := connect(t, server, calls.option()), connect(t, server)
	request := start(id)
	request.LeaseTtl = durationpb.New(time.Hour)
	err := bridge.Start(ctx, client, request, func(working context.Context, job *bridge.Job) error {
		until(t, ctx, func() bool { return len(calls.of("HeartbeatRun")) == 1 })
		taken(t, ctx, other, job.Run)
		_, err := job.Update(working, &pb.UpdateRunRequest{WorkflowId: proto.String("w")})
		refused(t, err, codes.FailedPrecondition, "LEASE_LOST")
		return wait(working, job)
	})
	refused(t, err, codes.FailedPrecondition, "LEASE_LOST")
	equal(t, len(calls.ends()), 0)
}

func TestARunThatSomebodyEndedIsNotReported(t *testing.T) {
	ctx, calls, id := begin(t), &recorder{}, newID()
	client, other := connect(t, server, calls.option()), connect(t, server)
	err := bridge.Start(ctx, client, start(id), func(working context.Context, job *bridge.Job) error {
		answer, err := other.AbortRun(ctx, &pb.AbortRunRequest{RunId: id})
		must(t, answer, err)
		return wait(working, job)
	})
	refused(t, err, codes.FailedPrecondition, "RUN_NOT_RUNNING")
	equal(t, len(calls.ends()), 0)
}

func TestARunThatTheAuthorityEndedByAConclusionIsReportedLate(t *testing.T) {
	ctx, calls, id := begin(t), &recorder{}, newID()
	client := connect(t, server, calls.option())
	err := bridge.Start(ctx, client, start(id), func(working context.Context, job *bridge.Job) error {
		// The next heartbeat is seconds away: by then, the run has ended.
		until(t, ctx, func() bool { return len(calls.of("HeartbeatRun")) == 1 })
		answer, err := client.RequestAbort(ctx, &pb.RequestAbortRequest{RunId: id, Grace: durationpb.New(0)})
		must(t, answer, err)
		_ = wait(working, job)
		until(t, ctx, func() bool { return get(t, ctx, client, id).Presumed })
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	run := get(t, ctx, client, id)
	equal(t, run.Status, pb.RunStatus_RUN_STATUS_ABORTED)
	equal(t, run.Outcome, pb.RunStatus_RUN_STATUS_COMPLETED)
}

func TestAnErrorOfTheWorkFailsTheRunWhateverItsText(t *testing.T) {
	ctx, id := begin(t), newID()
	client := connect(t, server)
	err := bridge.Start(ctx, client, start(id), func(context.Context, *bridge.Job) error {
		return errors.New("no\x00 \xff" + strings.Repeat("é", 4096))
	})
	if err == nil || status.Code(err) != codes.Unknown {
		t.Errorf("beside the work's own error: %v", err)
	}
	run := get(t, ctx, client, id)
	equal(t, run.Status, pb.RunStatus_RUN_STATUS_FAILED)
	equal(t, run.FailureReason, "no "+strings.Repeat("é", 2046))
}

func TestTheEndIsReportedAlsoWhenTheCallersContextIsOver(t *testing.T) {
	ctx, id := begin(t), newID()
	client := connect(t, server)
	mine, cancel := context.WithCancelCause(ctx)
	err := bridge.Start(mine, client, start(id), func(working context.Context, job *bridge.Job) error {
		cancel(errors.New("the program stops"))
		return wait(working, job)
	})
	if err == nil {
		t.Error("the work's error is lost")
	}
	run := get(t, ctx, client, id)
	equal(t, run.Status, pb.RunStatus_RUN_STATUS_FAILED)
	equal(t, run.FailureReason, "the program stops")
}

func TestAnEndWhoseAnswerIsLostIsSentAgainAndAppliedOnce(t *testing.T) {
	ctx, id := begin(t), newID()
	lost := grpc.WithChainUnaryInterceptor(func(ctx context.Context, path string, request, answer any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, path, request, answer, conn, options...)
		if ended, is := answer.(*pb.CompleteRunResponse); is && ended.Disposition == pb.Disposition_DISPOSITION_APPLIED {
			return status.Error(codes.Internal, "the stream was reset")
		}
		return err
	})
	calls := &recorder{}
	client := connect(t, server, calls.option(), lost)
	if err := bridge.Start(ctx, client, start(id), func(context.Context, *bridge.Job) error { return nil }); err != nil {
		t.Error(err)
	}
	ends := calls.ends()
	equal(t, len(ends), 2)
	equal(t, ends[1].answer.(*pb.CompleteRunResponse).Disposition, pb.Disposition_DISPOSITION_REPLAYED)
	equal(t, get(t, ctx, client, id).Revision, 2)
}

func TestNoWorkIsDoneUnderTheLeaseOfAnother(t *testing.T) {
	ctx, id := begin(t), newID()
	client := connect(t, server)
	answer, err := client.StartRun(ctx, start(id))
	must(t, answer, err)
	err = bridge.Start(ctx, client, start(id), func(context.Context, *bridge.Job) error {
		t.Error("the work began")
		return nil
	})
	if err == nil {
		t.Error("the second start was not refused")
	}
}

func TestAClaimedRunIsHeldAsOneThatWasStarted(t *testing.T) {
	ctx, id := begin(t), newID()
	client := connect(t, server)
	request := &pb.StartRunRequest{TaskThreadId: id, RunId: id, Deferred: true}
	answer, err := client.StartRun(ctx, request)
	must(t, answer, err)
	claim := &pb.ClaimNextRunRequest{RequestId: newID(), LeaseTtl: ttl, Wait: ttl, Filter: &pb.RunFilter{TaskThreadId: id}}
	claimed, err := client.ClaimNextRun(ctx, claim)
	err = bridge.Hold(ctx, client, must(t, claimed, err).Run, func(context.Context, *bridge.Job) error { return nil })
	if err != nil {
		t.Error(err)
	}
	equal(t, get(t, ctx, client, id).Status, pb.RunStatus_RUN_STATUS_COMPLETED)
}

func TestTextThatIsNotUTF8IsNotSentAgainAndAgain(t *testing.T) {
	ctx, request := begin(t), start(newID())
	request.TaskThreadId = "\xff"
	if err := bridge.Start(ctx, connect(t, server), request, wait); err == nil || ctx.Err() != nil {
		t.Error(err)
	}
}
