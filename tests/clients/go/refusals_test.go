// Every refusal arrives with its typed details, and Detail unpacks them.
package bridge_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/bridge"
	pb "example.com/bridge/gen/runledger/v1"
)

func summary(run *pb.Run) *pb.RunSummary {
	return &pb.RunSummary{Namespace: run.Namespace, RunId: run.RunId, TaskThreadId: run.TaskThreadId, AgentId: run.AgentId,
		Status: run.Status, Revision: run.Revision, StartedAt: run.StartedAt, RunningAt: run.RunningAt, UpdatedAt: run.UpdatedAt,
		CompletedAt: run.CompletedAt, ReasonCode: run.ReasonCode, FailureReason: run.FailureReason, Presumed: run.Presumed}
}

// A refusal is one that was provoked, and the detail that it should have.
type refusal struct {
	err    error
	code   codes.Code
	reason string
	want   proto.Message
	got    proto.Message
}

func as[T proto.Message](err error, code codes.Code, reason string, want T) refusal {
	return refusal{err, code, reason, want, bridge.Detail[T](err)}
}

// One more than a refusal lists.
var ends = []string{"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "p12", "p13", "p14", "p15", "p16"}

// underLifecycle starts a run that may complete in many phases, and not in its first one.
func underLifecycle(t *testing.T, ctx context.Context, client pb.RunServiceClient) string {
	conn, err := bridge.Dial(server)
	must(t, conn, err)
	t.Cleanup(func() { _ = conn.Close() })
	declaration := "name: bridge\ncompletion_requires: [\"LINK:artifact\"]\nphases:\n" +
		"  draft: {initial: true, next: [" + strings.Join(ends, ", ") + "]}\n"
	for _, end := range ends {
		declaration += "  " + end + ": {may_complete: true}\n"
	}
	put, err := pb.NewLifecycleServiceClient(conn).PutLifecycle(ctx, &pb.PutLifecycleRequest{Declaration: declaration})
	must(t, put, err)
	id := newID()
	answer, err := client.StartRun(ctx, &pb.StartRunRequest{RunId: id, TaskThreadId: "thread", Lifecycle: "bridge@1"})
	must(t, answer, err)
	return id
}

var errorProto = map[string]func(*testing.T, context.Context, pb.RunServiceClient, string) refusal{
	"LifecycleTransitionError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, id string) refusal {
		answer, err := client.AbortRun(ctx, &pb.AbortRunRequest{RunId: id, FailureReason: "stopped", ReasonCode: "TIMEOUT"})
		run := must(t, answer, err).Run
		_, err = client.CompleteRun(ctx, &pb.CompleteRunRequest{RunId: id, LeaseEpoch: 1})
		return as(err, codes.FailedPrecondition, "INVALID_TRANSITION", &pb.LifecycleTransitionError{
			Name: "LifecycleTransitionError", RunId: id, From: pb.RunStatus_RUN_STATUS_ABORTED, To: pb.RunStatus_RUN_STATUS_COMPLETED,
			Message: "Invalid lifecycle transition for run " + id + ": aborted → completed", Run: summary(run)})
	},
	"OwnershipError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, id string) refusal {
		ctx = metadata.AppendToOutgoingContext(ctx, "runledger-agent-id", "thief")
		_, err := client.CompleteRun(ctx, &pb.CompleteRunRequest{RunId: id, LeaseEpoch: 1})
		return as(err, codes.PermissionDenied, "NOT_OWNER", &pb.OwnershipError{
			RunId: id, AgentId: "thief", OwnerAgentId: "owner", TabGroupId: "tabs", Action: "CompleteRun"})
	},
	"LeaseLostError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, id string) refusal {
		run := get(t, ctx, client, id)
		_, err := client.HeartbeatRun(ctx, &pb.HeartbeatRunRequest{RunId: id, LeaseEpoch: 1<<64 - 1})
		return as(err, codes.FailedPrecondition, "LEASE_LOST", &pb.LeaseLostError{
			RunId: id, LeaseEpoch: 1<<64 - 1, CurrentEpoch: 1, Run: summary(run)})
	},
	"LeaseHeldError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, id string) refusal {
		run := get(t, ctx, client, id)
		_, err := client.ClaimRun(ctx, &pb.ClaimRunRequest{RunId: id, LeaseTtl: ttl})
		return as(err, codes.FailedPrecondition, "LEASE_HELD", &pb.LeaseHeldError{
			RunId: id, CurrentEpoch: 1, ExpiresAt: run.Lease.ExpiresAt, Run: summary(run)})
	},
	"MaxRunningError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, id string) refusal {
		first, second, one := newID(), newID(), &pb.MaxRunning{Label: "instance", Limit: 1}
		for _, queued := range []string{first, second} {
			labels := map[string]string{"instance": id}
			request := &pb.StartRunRequest{TaskThreadId: "thread", RunId: queued, Deferred: true, Labels: labels}
			answer, err := client.StartRun(ctx, request)
			must(t, answer, err)
		}
		answer, err := client.ClaimRun(ctx, &pb.ClaimRunRequest{RunId: first, LeaseTtl: ttl, MaxRunning: one})
		must(t, answer, err)
		_, err = client.ClaimRun(ctx, &pb.ClaimRunRequest{RunId: second, LeaseTtl: ttl, MaxRunning: one})
		return as(err, codes.FailedPrecondition, "MAX_RUNNING", &pb.MaxRunningError{RunId: second, Label: "instance", Value: id,
			Limit: 1, Running: 1, RunningRunIds: []string{first}, Run: summary(get(t, ctx, client, second))})
	},
	"RevisionMismatchError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, id string) refusal {
		request := &pb.CompleteRunRequest{RunId: id, LeaseEpoch: 1, ExpectedRevision: proto.Uint64(1<<64 - 1)}
		_, err := client.CompleteRun(ctx, request)
		return as(err, codes.Aborted, "REVISION_MISMATCH", &pb.RevisionMismatchError{
			ExpectedRevision: 1<<64 - 1, ActualRevision: 1, Run: summary(get(t, ctx, client, id))})
	},
	"QuotaExceededError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, id string) refusal {
		namespace := strings.ToLower(id)
		conn, err := bridge.Dial(server)
		must(t, conn, err)
		t.Cleanup(func() { _ = conn.Close() })
		request := &pb.CreateNamespaceRequest{Name: namespace, Quotas: &pb.NamespaceQuotas{MaxActiveRuns: 1}}
		made, err := pb.NewNamespaceServiceClient(conn).CreateNamespace(ctx, request)
		must(t, made, err)
		ctx = metadata.AppendToOutgoingContext(ctx, "runledger-namespace", namespace)
		answer, err := client.StartRun(ctx, start(newID()))
		must(t, answer, err)
		_, err = client.StartRun(ctx, start(newID()))
		return as(err, codes.ResourceExhausted, "QUOTA_EXCEEDED", &pb.QuotaExceededError{
			Namespace: namespace, Quota: "max_active_runs", Limit: 1, Used: 1})
	},
	"PhaseError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, _ string) refusal {
		id := underLifecycle(t, ctx, client)
		_, err := client.CompleteRun(ctx, &pb.CompleteRunRequest{RunId: id})
		return as(err, codes.FailedPrecondition, "INVALID_PHASE", &pb.PhaseError{RunId: id, Lifecycle: "bridge@1", From: "draft",
			To: "draft", Allowed: ends[:16], More: 1, Completes: true, Run: summary(get(t, ctx, client, id))})
	},
	"IterationLimitError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, _ string) refusal {
		id := newID()
		answer, err := client.StartRun(ctx, &pb.StartRunRequest{RunId: id, TaskThreadId: "thread", MaxIterations: 1})
		must(t, answer, err)
		_, err = client.UpdateRun(ctx, &pb.UpdateRunRequest{RunId: id, Iteration: proto.Uint32(2)})
		return as(err, codes.FailedPrecondition, "ITERATION_LIMIT", &pb.IterationLimitError{RunId: id, Iteration: 2,
			MaxIterations: 1, Run: summary(get(t, ctx, client, id))})
	},
	"RunSuspendedError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, _ string) refusal {
		id := newID()
		answer, err := client.StartRun(ctx, &pb.StartRunRequest{RunId: id, TaskThreadId: "thread",
			LeaseTtl: durationpb.New(time.Minute)})
		must(t, answer, err)
		suspended, err := client.SuspendRun(ctx, &pb.SuspendRunRequest{RunId: id, LeaseEpoch: 1, Kind: "PAUSED", Reason: "not now",
			ResumeHint: "ask", Timeout: durationpb.New(time.Hour), KeepSlot: true})
		must(t, suspended, err)
		resumed, err := client.ResumeRun(ctx, &pb.ResumeRunRequest{RunId: id})
		must(t, resumed, err)
		_, err = client.UpdateRun(ctx, &pb.UpdateRunRequest{RunId: id, LeaseEpoch: 1, FallbackUsed: true})
		ready := get(t, ctx, client, id)
		said := proto.Clone(ready.Suspension).(*pb.Suspension)
		said.Resumption = nil
		return as(err, codes.FailedPrecondition, "RUN_SUSPENDED", &pb.RunSuspendedError{RunId: id, Suspension: said,
			Ready: true, Run: summary(ready)})
	},
	"BudgetExceededError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, _ string) refusal {
		id := newID()
		answer, err := client.StartRun(ctx, &pb.StartRunRequest{RunId: id, TaskThreadId: "thread", MaxIterations: 1,
			MaxIterationsThen: pb.LimitThen_LIMIT_THEN_SUSPEND})
		must(t, answer, err)
		for iteration := range uint32(2) {
			updated, err := client.UpdateRun(ctx, &pb.UpdateRunRequest{RunId: id, Iteration: proto.Uint32(iteration + 1)})
			must(t, updated, err)
		}
		_, err = client.ResumeRun(ctx, &pb.ResumeRunRequest{RunId: id, Reason: "go on"})
		return as(err, codes.FailedPrecondition, "BUDGET_EXCEEDED", &pb.BudgetExceededError{RunId: id, Budget: "iterations",
			Spent: 1, Limit: 1, Run: summary(get(t, ctx, client, id))})
	},
	"CompletionIncompleteError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, _ string) refusal {
		id := underLifecycle(t, ctx, client)
		_, err := client.CompleteRun(ctx, &pb.CompleteRunRequest{RunId: id, Phase: ends[0]})
		return as(err, codes.FailedPrecondition, "COMPLETION_INCOMPLETE", &pb.CompletionIncompleteError{RunId: id,
			Lifecycle: "bridge@1", Missing: []string{"LINK:artifact"}, Run: summary(get(t, ctx, client, id))})
	},
	"RunIdConflictError": func(t *testing.T, ctx context.Context, client pb.RunServiceClient, id string) refusal {
		_, err := client.StartRun(ctx, &pb.StartRunRequest{RunId: id, TaskThreadId: "another"})
		return as(err, codes.AlreadyExists, "RUN_ID_CONFLICT", &pb.RunIdConflictError{
			Field: "task_thread_id", Requested: "another", Actual: "thread", Run: summary(get(t, ctx, client, id))})
	},
}

func TestEveryDetailOfErrorProtoArrivesWithAllItsFields(t *testing.T) {
	ctx, client := begin(t), connect(t, server)
	messages := pb.File_runledger_v1_error_proto.Messages()
	equal(t, len(errorProto), messages.Len())
	for i := range messages.Len() {
		name := string(messages.Get(i).Name())
		provoke := errorProto[name]
		if provoke == nil {
			t.Errorf("nobody provokes %s", name)
			continue
		}
		id := newID()
		request := start(id)
		request.AgentId, request.TabGroupId, request.LeaseTtl = "owner", "tabs", durationpb.New(time.Hour)
		answer, err := client.StartRun(ctx, request)
		must(t, answer, err)
		it := provoke(t, ctx, client, id)
		refused(t, it.err, it.code, it.reason)
		same(t, it.got, it.want)
		for j := range messages.Get(i).Fields().Len() {
			if field := messages.Get(i).Fields().Get(j); !it.want.ProtoReflect().Has(field) {
				t.Errorf("%s is not provoked with its %s", name, field.Name())
			}
		}
	}
}

func TestInvalidFieldListsEveryViolation(t *testing.T) {
	_, err := connect(t, server).StartRun(begin(t), &pb.StartRunRequest{RunId: "not an id"})
	refused(t, err, codes.InvalidArgument, "INVALID_FIELD")
	fields := map[string]bool{}
	for _, violation := range bridge.Detail[*errdetails.BadRequest](err).GetFieldViolations() {
		fields[violation.Field] = violation.Description != ""
	}
	equal(t, fields["run_id"] && fields["task_thread_id"] && len(fields) == 2, true)
}

func TestRunNotFoundNamesTheResource(t *testing.T) {
	id := newID()
	_, err := connect(t, server).GetRun(begin(t), &pb.GetRunRequest{RunId: id})
	refused(t, err, codes.NotFound, "RUN_NOT_FOUND")
	equal(t, bridge.Detail[*errdetails.ResourceInfo](err).GetResourceName(), id)
}

func TestRunNotRunningShowsTheRun(t *testing.T) {
	ctx, client, id := begin(t), connect(t, server), newID()
	answer, err := client.StartRun(ctx, &pb.StartRunRequest{TaskThreadId: "thread", RunId: id, Deferred: true})
	run := must(t, answer, err).Run
	_, err = client.UpdateRun(ctx, &pb.UpdateRunRequest{RunId: id})
	refused(t, err, codes.FailedPrecondition, "RUN_NOT_RUNNING")
	same(t, bridge.Detail[*pb.RunSummary](err), summary(run))
}

func TestADetailThatThisProgramDoesNotKnowIsSkipped(t *testing.T) {
	refusal := status.New(codes.Unavailable, "stopping").Proto()
	unknown := &anypb.Any{TypeUrl: "type.googleapis.com/runledger.v2.ToCome", Value: []byte{1}}
	info, _ := anypb.New(&errdetails.ErrorInfo{Domain: "runledger", Reason: "DRAINING"})
	retry, _ := anypb.New(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	refusal.Details = []*anypb.Any{unknown, info, retry}
	err := status.FromProto(refusal).Err()
	refused(t, err, codes.Unavailable, "DRAINING")
	equal(t, bridge.Detail[*errdetails.RetryInfo](err).GetRetryDelay().AsDuration(), time.Second)
	equal(t, bridge.Detail[*errdetails.ResourceInfo](err) == nil, true)
}
