package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	pb "example.com/peers/gen/runledger/v1"
)

const (
	leaseTTL  = time.Minute
	claimWait = 2 * time.Second
)

// calls sends one transition a call.
type calls struct {
	client   pb.RunServiceClient
	metadata *structpb.Struct
}

// batchedCalls sends the transitions of many runs a call.
type batchedCalls struct {
	calls
	batch int
}

// deferredCalls does so by way of the queue: a run is started deferred, and completed by whoever claims it.
type deferredCalls struct{ calls }

func measureCalls(ctx context.Context, set *flag.FlagSet, arguments []string) (Report, error) {
	var plan Plan
	plan.Flags(set, "connections that the calls share")
	server := set.String("server", "127.0.0.1:50051", "the server that is called")
	deferred := set.Bool("deferred", false, "start runs deferred, claim the next one, and complete it")
	batch := set.Int("batch", 0, "send each step of so many runs in one call, ApplyCommands; 0: one by one")
	_ = set.Parse(arguments) // It exits by itself.

	work := NewWork()
	metadata, err := structpb.NewStruct(work.Metadata())
	if err != nil {
		return Report{}, err
	}
	var senders []Sender
	for range plan.Connections {
		connection, err := grpc.NewClient(*server, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return Report{}, err
		}
		defer connection.Close()
		sender := calls{pb.NewRunServiceClient(connection), metadata}
		switch {
		case *deferred:
			senders = append(senders, deferredCalls{sender})
		case *batch > 0:
			senders = append(senders, batchedCalls{sender, *batch})
		default:
			senders = append(senders, sender)
		}
	}
	load := plan.Begin()
	if err := load.Call(ctx, work, senders...); err != nil {
		return Report{}, err
	}
	return load.Report(), nil
}

func (c calls) Turn(ctx context.Context, work *Work, tally *Tally) error {
	run := work.Next()
	sent := time.Now()
	if err := c.start(ctx, run, false); err != nil {
		return err
	}
	sent = tally.Answered(sent, 1, 0)
	if err := c.complete(ctx, run.ID, 0); err != nil {
		return err
	}
	tally.Answered(sent, 1, 1)
	return nil
}

func (c batchedCalls) Turn(ctx context.Context, work *Work, tally *Tally) error {
	var starts, completes []*pb.RunCommand
	for range c.batch {
		run := work.Next()
		starts = append(starts, &pb.RunCommand{Command: &pb.RunCommand_Start{Start: c.startOf(run, false)}})
		complete := &pb.CompleteRunRequest{RunId: run.ID}
		completes = append(completes, &pb.RunCommand{Command: &pb.RunCommand_Complete{Complete: complete}})
	}
	sent := time.Now()
	if err := c.apply(ctx, starts); err != nil {
		return err
	}
	sent = tally.Answered(sent, c.batch, 0)
	if err := c.apply(ctx, completes); err != nil {
		return err
	}
	tally.Answered(sent, c.batch, c.batch)
	return nil
}

func (c calls) apply(ctx context.Context, commands []*pb.RunCommand) error {
	answer, err := c.client.ApplyCommands(ctx, &pb.ApplyCommandsRequest{Commands: commands})
	if err != nil {
		return fmt.Errorf("ApplyCommands: %w", err)
	}
	for _, result := range answer.Results {
		if result.Error != nil {
			return fmt.Errorf("ApplyCommands: %v", result.Error)
		}
		if err := applied(result, nil); err != nil {
			return err
		}
	}
	return nil
}

func (c deferredCalls) Turn(ctx context.Context, work *Work, tally *Tally) error {
	run := work.Next()
	sent := time.Now()
	if err := c.start(ctx, run, true); err != nil {
		return err
	}
	sent = tally.Answered(sent, 1, 0)
	claimed, err := c.claim(ctx, run.ID)
	if err != nil {
		return err
	}
	sent = tally.Answered(sent, 1, 0)
	if err := c.complete(ctx, claimed.RunId, claimed.Lease.GetEpoch()); err != nil {
		return err
	}
	tally.Answered(sent, 1, 1)
	return nil
}

func (c calls) start(ctx context.Context, run Run, deferred bool) error {
	answer, err := c.client.StartRun(ctx, c.startOf(run, deferred))
	return applied(answer, err)
}

func (c calls) startOf(run Run, deferred bool) *pb.StartRunRequest {
	return &pb.StartRunRequest{RunId: run.ID, TaskThreadId: run.TaskThreadID, AgentId: "agent-1",
		Metadata: c.metadata, Deferred: deferred}
}

// claim takes whichever run is next. Every caller has started one before, so there is one for each; but it may wait until
// another caller's claim has let it go.
func (c calls) claim(ctx context.Context, requestID string) (*pb.Run, error) {
	request := &pb.ClaimNextRunRequest{LeaseTtl: durationpb.New(leaseTTL), Wait: durationpb.New(claimWait),
		RequestId: requestID}
	for {
		answer, err := c.client.ClaimNextRun(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("ClaimNextRun: %w", err)
		}
		if answer.Run != nil {
			return answer.Run, nil
		}
	}
}

func (c calls) complete(ctx context.Context, runID string, leaseEpoch uint64) error {
	answer, err := c.client.CompleteRun(ctx, &pb.CompleteRunRequest{RunId: runID, LeaseEpoch: leaseEpoch})
	return applied(answer, err)
}

// applied makes an error of a call that did nothing: a load of such calls is another load.
func applied[A interface{ GetDisposition() pb.Disposition }](answer A, err error) error {
	if err != nil {
		return fmt.Errorf("%T: %w", answer, err)
	}
	if disposition := answer.GetDisposition(); disposition != pb.Disposition_DISPOSITION_APPLIED {
		return fmt.Errorf("%T: %v", answer, disposition)
	}
	return nil
}
