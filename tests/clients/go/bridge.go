// Package bridge connects to Runledger, does work under a lease, and watches runs.
package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "example.com/bridge/gen/runledger/v1"
)

//go:embed service_config.json
var serviceConfig string

// Dial returns a connection to a server, such as "127.0.0.1:50051", for pb.NewRunServiceClient. The first call connects.
// Every unary call has a deadline, and is retried as the service config says.
func Dial(target string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	// By default, gRPC waits for up to two minutes before it connects again: longer than most leases last.
	reconnect := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}
	alive := keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}
	return grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(alive),
		// By default, gRPC retries no request above 256 KiB. Runledger takes up to 1 MiB.
		grpc.WithDefaultCallOptions(grpc.MaxRetryRPCBufferSize(2 << 20)),
		grpc.WithChainUnaryInterceptor(bounded),
	}, options...)...)
}

// bounded gives a deadline to the calls that have none in the service config, such as those that wait for long.
func bounded(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	limit := 15 * time.Second
	switch request := request.(type) {
	case *pb.WaitRunRequest:
		limit = 10*time.Second + cmp.Or(request.Timeout, durationpb.New(time.Minute)).AsDuration()
	case *pb.ClaimNextRunRequest:
		limit = 10*time.Second + request.GetWait().AsDuration()
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return invoke(ctx, method, request, answer, conn, options...)
}

// Detail returns a refusal's detail of the type T, such as *pb.LeaseLostError, or nil. The getters of nil answer, too.
// The details' types are looked up among all generated code in the program; unknown ones are skipped.
func Detail[T proto.Message](err error) (found T) {
	for _, detail := range status.Convert(err).Details() {
		if detail, ok := detail.(T); ok {
			found = detail
		}
	}
	return found
}

// Reason returns Runledger's reason for a refusal. "": the error is not Runledger's, and the call may have been applied.
func Reason(err error) string {
	if info := Detail[*errdetails.ErrorInfo](err); info.GetDomain() == "runledger" {
		return info.GetReason()
	}
	return ""
}

// retryable says whether a call that failed is worth sending again. It must have a request_id, or change nothing.
func retryable(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded:
		return true
	}
	return err != nil && Reason(err) == "" && status.Code(err) != codes.Unimplemented
}

// untilAnswered sends a call until it is answered or refused, for five minutes at most.
func untilAnswered[Q proto.Message, A any](ctx context.Context, call func(context.Context, Q, ...grpc.CallOption) (A, error),
	request Q) (answer A, err error) {
	if _, err = proto.Marshal(request); err != nil {
		return // A string is not UTF-8: gRPC would fail each time, and not say that it is for good.
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		if answer, err = call(ctx, request); !retryable(err) || !sleep(ctx, time.Second) {
			return
		}
	}
}

func sleep(ctx context.Context, wait time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
	return ctx.Err() == nil
}

// ErrAbortRequested is why the context of the work is over when somebody asked for the run to be aborted.
var ErrAbortRequested = errors.New("somebody asked for the run to be aborted")

// Work does what a run is for. Its context is over when the run is to stop, and context.Cause says why:
// ErrAbortRequested, a refusal such as LEASE_LOST, or the caller's own context. Nil says that the work is done.
type Work = func(ctx context.Context, job *Job) error

// A Job is a run whose lease this process holds.
type Job struct {
	Run    *pb.Run // As it was when the lease was granted.
	client pb.RunServiceClient
	stop   context.CancelCauseFunc
	abort  atomic.Pointer[pb.AbortRequest]
	over   atomic.Pointer[error] // The refusal after which the end is not this process's to report.
}

// Start starts a run under a lease, of 30 s unless the request says otherwise, and does its work as Hold does.
func Start(ctx context.Context, client pb.RunServiceClient, request *pb.StartRunRequest, work Work) error {
	request = proto.CloneOf(request)
	request.RequestId = cmp.Or(request.RequestId, rand.Text())
	request.LeaseTtl = cmp.Or(request.LeaseTtl, durationpb.New(30*time.Second))
	answer, err := untilAnswered(ctx, client.StartRun, request)
	if err != nil {
		return err
	}
	if answer.Disposition == pb.Disposition_DISPOSITION_UNCHANGED {
		return errors.New("the run was started already, and its lease may be somebody else's")
	}
	return Hold(ctx, client, answer.Run, work)
}

// Hold does the work of a run that was started or claimed under a lease, renews the lease meanwhile, and reports the end:
// COMPLETED when the work is done, ABORTED when it stopped with an error after a request to abort the run, else FAILED with
// the error. It reports nothing of a run that has ended or is somebody else's by then. While nobody answers, it goes on
// reporting for five minutes. It returns the work's error and the refusal.
func Hold(ctx context.Context, client pb.RunServiceClient, run *pb.Run, work Work) error {
	if run.GetLease() == nil {
		return errors.New("there is no run that was started or claimed under a lease")
	}
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// The lease is renewed, and the end reported, also when the caller's context is over.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	job := &Job{Run: run, client: client, stop: stop}
	id, epoch, end := run.RunId, run.Lease.Epoch, rand.Text()
	go job.heartbeats(holding)

	err := work(working, job)
	var refused error
	switch over, abort := job.over.Load(), job.abort.Load(); {
	case over != nil:
		refused = *over
	case err == nil:
		_, refused = untilAnswered(holding, client.CompleteRun, &pb.CompleteRunRequest{RunId: id, LeaseEpoch: epoch, RequestId: end})
	case abort != nil:
		_, refused = untilAnswered(holding, client.AbortRun, &pb.AbortRunRequest{RunId: id, LeaseEpoch: epoch, RequestId: end,
			FailureReason: abort.Reason, ReasonCode: "ABORT_REQUESTED"})
	default:
		// A reason is UTF-8 without U+0000, of 1 to 4,096 bytes; a Go string may be anything.
		reason := strings.ReplaceAll(err.Error(), "\x00", "")
		reason = cmp.Or(strings.ToValidUTF8(reason[:min(len(reason), 4096)], ""), "no reason was given")
		_, refused = untilAnswered(holding, client.FailRun, &pb.FailRunRequest{RunId: id, LeaseEpoch: epoch, RequestId: end,
			FailureReason: reason})
	}
	return errors.Join(err, refused)
}

// Update sends an UpdateRun under the lease.
func (j *Job) Update(ctx context.Context, request *pb.UpdateRunRequest) (*pb.UpdateRunResponse, error) {
	request = proto.CloneOf(request)
	request.RunId, request.LeaseEpoch = j.Run.RunId, j.Run.Lease.Epoch
	request.RequestId = cmp.Or(request.RequestId, rand.Text())
	answer, err := untilAnswered(ctx, j.client.UpdateRun, request)
	j.stopIfOver(err)
	return answer, err
}

// heartbeats renews the lease every third of its ttl; first at once, for it may have been granted to an earlier attempt.
func (j *Job) heartbeats(ctx context.Context) {
	ttl, wait := j.Run.Lease.Ttl.AsDuration(), time.Duration(0)
	for sleep(ctx, wait) {
		sent := time.Now()
		attempt, cancel := context.WithTimeout(ctx, ttl/3)
		answer, err := j.client.HeartbeatRun(attempt, &pb.HeartbeatRunRequest{RunId: j.Run.RunId, LeaseEpoch: j.Run.Lease.Epoch})
		cancel()
		wait = ttl/3 - time.Since(sent)
		if err != nil {
			wait = min(ttl/12, 500*time.Millisecond) // At once, but not in a hot loop.
		}
		if j.stopIfOver(err) {
			return
		}
		if abort := answer.GetAbortRequest(); abort != nil {
			j.abort.Store(abort)
			j.stop(ErrAbortRequested)
		}
	}
}

// stopIfOver stops the work when a refusal says that the run has ended or is somebody else's.
func (j *Job) stopIfOver(err error) (stopped bool) {
	lost := Detail[*pb.LeaseLostError](err)
	run := cmp.Or(lost.GetRun(), Detail[*pb.RunSummary](err))
	mine := lost == nil || lost.CurrentEpoch == j.Run.Lease.Epoch
	switch reason := Reason(err); {
	case reason != "LEASE_LOST" && reason != "RUN_NOT_RUNNING" && reason != "RUN_NOT_FOUND" && reason != "NOT_OWNER":
		return false
	case mine && run.GetStatus() == pb.RunStatus_RUN_STATUS_RUNNING:
		return false // The lease is over, and nobody has followed yet: the work may finish.
	case mine && run.GetPresumed(): // The authority ended the run by a conclusion, and still takes its real end.
	default:
		j.over.Store(&err)
	}
	j.stop(err)
	return true
}

// Watch shows a run's frames until its end. It resumes streams that are cut, for as long as the context lasts; a request
// with AfterRevision and LedgerEpoch resumes an earlier watch. A refusal, or the context's cause, comes last, as an error.
// A second snapshot says that the ledger was restored: what was shown before it is gone.
func Watch(ctx context.Context, client pb.RunServiceClient,
	request *pb.WatchRunRequest) iter.Seq2[*pb.WatchRunResponse, error] {
	return func(yield func(*pb.WatchRunResponse, error) bool) {
		ctx, cancel := context.WithCancel(ctx) // For a reader that leaves early.
		defer cancel()
		from := proto.CloneOf(request)
		for failures := 0; ; failures++ {
			stream, err := client.WatchRun(ctx, from)
			for err == nil {
				var frame *pb.WatchRunResponse
				if frame, err = stream.Recv(); err != nil {
					break // io.EOF is a cut as well: a whole watch has an end.
				}
				failures = 0
				// A frame has one of these, or none, such as progress: there is nothing to resume from then.
				revision := max(frame.GetSnapshot().GetRun().GetRevision(), frame.GetChange().GetEvent().GetRevision(),
					frame.GetCaughtUp().GetRevision(), frame.GetCheckpoint().GetRevision())
				if revision > 0 {
					from.AfterRevision, from.LedgerEpoch = &revision, proto.Uint64(frame.LedgerEpoch)
				}
				// A frame of a kind that this program does not know is none, and skipped.
				if frame.Frame != nil && !yield(frame, nil) || frame.GetEnd() != nil {
					return
				}
			}
			switch reason := Reason(err); {
			case ctx.Err() != nil:
				yield(nil, context.Cause(ctx))
				return
			case reason == "LEDGER_RESTORED":
				from.AfterRevision, from.LedgerEpoch = nil, nil
			case reason == "DRAINING" && failures == 0:
				continue // The server or the connection goes away as planned: come back at once.
			case !retryable(err):
				yield(nil, err)
				return
			}
			sleep(ctx, min(100*time.Millisecond<<min(failures, 6), 5*time.Second))
		}
	}
}
