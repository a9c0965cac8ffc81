// Connecting: deadlines, and what the service config retries.
package bridge_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"example.com/bridge"
	pb "example.com/bridge/gen/runledger/v1"
)

func TestEveryUnaryCallHasADeadline(t *testing.T) {
	ctx := t.Context()
	calls := &recorder{instead: func(string, int) error { return errors.New("not sent") }}
	client := connect(t, server, calls.option())
	_, _ = client.GetRun(ctx, &pb.GetRunRequest{})
	_, _ = client.WaitRun(ctx, &pb.WaitRunRequest{})
	_, _ = client.WaitRun(ctx, &pb.WaitRunRequest{Timeout: durationpb.New(time.Hour)})
	_, _ = client.ClaimNextRun(ctx, &pb.ClaimNextRunRequest{Wait: durationpb.New(time.Hour)})
	for i, want := range []time.Duration{15 * time.Second, 70 * time.Second, 3610 * time.Second, 3610 * time.Second} {
		if deadline := calls.calls[i].deadline; deadline > want || deadline < want-10*time.Second {
			t.Errorf("%s has %v, not %v", calls.calls[i].method, deadline, want)
		}
	}
}

func TestACallWhoseConnectionsAreCutIsRetried(t *testing.T) {
	ctx := begin(t)
	client := connect(t, proxy(t, func(number int, client, server net.Conn) {
		if number > 1 {
			_, _ = io.Copy(client, server)
		}
	}))
	request := start(newID())
	request.RequestId = newID()
	answer, err := client.StartRun(ctx, request)
	equal(t, must(t, answer, err).Disposition, pb.Disposition_DISPOSITION_APPLIED)
}

func TestALargeCallWhoseAnswerIsCutOffIsRetriedAndAppliedOnce(t *testing.T) {
	ctx, id, cut := begin(t), newID(), make(chan struct{})
	var swallow atomic.Bool
	target := proxy(t, func(number int, client, server net.Conn) {
		if number > 0 {
			_, _ = io.Copy(client, server)
			return
		}
		go func() {
			buffer := make([]byte, 1<<16)
			for count, err := server.Read(buffer); err == nil; count, err = server.Read(buffer) {
				if !swallow.Load() {
					_, _ = client.Write(buffer[:count])
				}
			}
		}()
		<-cut
	})
	client, direct := connect(t, target), connect(t, server)
	_, err := client.GetRun(ctx, &pb.GetRunRequest{RunId: id}) // Connects.
	refused(t, err, codes.NotFound, "RUN_NOT_FOUND")

	request, answered := start(id), make(chan error)
	request.RequestId = newID()
	numbers := structpb.NewListValue(&structpb.ListValue{Values: make([]*structpb.Value, 32_000)})
	for i := range numbers.GetListValue().Values {
		numbers.GetListValue().Values[i] = structpb.NewNumberValue(7)
	}
	request.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"numbers": numbers}}
	var answer *pb.StartRunResponse
	swallow.Store(true)
	go func() {
		var err error
		answer, err = client.StartRun(ctx, request)
		answered <- err
	}()
	until(t, ctx, func() bool {
		_, err := direct.GetRun(ctx, &pb.GetRunRequest{RunId: id})
		return err == nil
	})
	close(cut)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	equal(t, answer.Disposition, pb.Disposition_DISPOSITION_REPLAYED)
	equal(t, get(t, ctx, direct, id).Revision, 1)
}

func TestWhatTheLibrarySaysItselfHasNoReason(t *testing.T) {
	ctx := begin(t)
	request := &pb.GetRunRequest{RunId: newID()}
	_, err := connect(t, "127.0.0.1:1").GetRun(ctx, request)
	refused(t, err, codes.Unavailable, "")
	past, cancel := context.WithTimeout(ctx, -time.Second)
	defer cancel()
	_, err = connect(t, server).GetRun(past, request)
	refused(t, err, codes.DeadlineExceeded, "")
	equal(t, bridge.Reason(errors.New("not gRPC's")), "")
}
