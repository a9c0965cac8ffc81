// Watching a run to its end, whatever comes between.
package bridge_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"example.com/bridge"
	pb "example.com/bridge/gen/runledger/v1"
)

func TestAWatchThatIsCutAgainAndAgainShowsEveryRevisionOnceAndInOrder(t *testing.T) {
	ctx, id := begin(t), newID()
	const updates = 100
	// Each connection is cut after so many bytes of answers, amid a frame. They hold more than one of HTTP/2's frames, of 16
	// KiB, and some of the watch's, of 4 KiB.
	var cuts atomic.Int32
	client := connect(t, proxy(t, func(_ int, client, server net.Conn) {
		_, _ = io.CopyN(client, server, 45_678)
		cuts.Add(1)
	}))
	written, ended := make(chan struct{}), make(chan error, 1)
	writer := connect(t, server)
	go func() {
		ended <- bridge.Start(ctx, writer, start(id), func(ctx context.Context, job *bridge.Job) error {
			close(written)
			for range updates {
				pad := structpb.NewStringValue(newID() + strings.Repeat("p", 2_000))
				metadata := &structpb.Struct{Fields: map[string]*structpb.Value{"pad": pad}}
				if _, err := job.Update(ctx, &pb.UpdateRunRequest{Metadata: metadata}); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	<-written
	var revisions, want []uint64
	var end *pb.Run
	for frame, err := range bridge.Watch(ctx, client, &pb.WatchRunRequest{RunId: id, AfterRevision: proto.Uint64(0)}) {
		if err != nil {
			t.Fatal(err)
		}
		if change := frame.GetChange(); change != nil {
			revisions = append(revisions, change.Event.Revision)
			equal(t, change.Run.Revision, change.Event.Revision)
		}
		end = frame.GetEnd().GetRun()
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for revision := range uint64(updates + 2) {
		want = append(want, revision+1)
	}
	if !slices.Equal(revisions, want) {
		t.Errorf("got %v", revisions)
	}
	equal(t, end.GetStatus(), pb.RunStatus_RUN_STATUS_COMPLETED)
	if cuts := cuts.Load(); cuts < 3 {
		t.Errorf("the watch was cut %d times", cuts)
	}
}

// scripted is a server whose watches are these, one after the other.
type scripted struct {
	pb.UnimplementedRunServiceServer
	asked   chan *pb.WatchRunRequest
	watches []func(grpc.ServerStreamingServer[pb.WatchRunResponse]) error
}

func (s *scripted) WatchRun(request *pb.WatchRunRequest, stream grpc.ServerStreamingServer[pb.WatchRunResponse]) error {
	s.asked <- request
	return s.watches[len(s.asked)-1](stream)
}

func refuse(code codes.Code, reason string) error {
	refusal, _ := status.New(code, reason).WithDetails(&errdetails.ErrorInfo{Domain: "runledger", Reason: reason})
	return refusal.Err()
}

func TestAWatchResumesByTheLastFrameThatSaysWhere(t *testing.T) {
	ctx := begin(t)
	snapshot := func(revision uint64) *pb.WatchRunResponse {
		return &pb.WatchRunResponse{Frame: &pb.WatchRunResponse_Snapshot_{
			Snapshot: &pb.WatchRunResponse_Snapshot{Run: &pb.Run{Revision: revision}}}}
	}
	checkpoint := &pb.WatchRunResponse{LedgerEpoch: 7, Frame: &pb.WatchRunResponse_Checkpoint_{
		Checkpoint: &pb.WatchRunResponse_Checkpoint{Revision: 4}}}
	progressed := &pb.WatchRunResponse{Frame: &pb.WatchRunResponse_Progressed_{
		Progressed: &pb.WatchRunResponse_Progressed{Progress: &pb.Progress{Done: 1}}}}
	toCome := &pb.WatchRunResponse{}
	toCome.ProtoReflect().SetUnknown([]byte{0xfa, 0x01, 0x00})
	end := &pb.WatchRunResponse{Frame: &pb.WatchRunResponse_End_{End: &pb.WatchRunResponse_End{Run: &pb.Run{Revision: 2}}}}

	type stream = grpc.ServerStreamingServer[pb.WatchRunResponse]
	frames := func(err error, frames ...*pb.WatchRunResponse) func(stream) error {
		return func(to stream) error {
			for _, frame := range frames {
				if err := to.Send(frame); err != nil {
					return err
				}
			}
			return err
		}
	}
	watches := []func(stream) error{
		frames(refuse(codes.Unavailable, "DRAINING"), snapshot(3), progressed, toCome),
		frames(nil, checkpoint, progressed),
		frames(status.Error(codes.Canceled, "the reader was slow")),
		frames(refuse(codes.OutOfRange, "LEDGER_RESTORED")),
		frames(nil, snapshot(1), end),
	}
	service := &scripted{asked: make(chan *pb.WatchRunRequest, len(watches)), watches: watches}
	serving := grpc.NewServer()
	pb.RegisterRunServiceServer(serving, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, listener, err)
	go func() { _ = serving.Serve(listener) }()
	t.Cleanup(serving.Stop)

	var seen []*pb.WatchRunResponse
	request := &pb.WatchRunRequest{RunId: "run"}
	for frame, err := range bridge.Watch(ctx, connect(t, listener.Addr().String()), request) {
		seen = append(seen, must(t, frame, err))
	}
	for i, want := range []*pb.WatchRunResponse{snapshot(3), progressed, checkpoint, progressed, snapshot(1), end} {
		same(t, seen[i], want)
	}
	close(service.asked)
	at := func(revision, epoch uint64) *pb.WatchRunRequest {
		return &pb.WatchRunRequest{RunId: "run", AfterRevision: &revision, LedgerEpoch: &epoch}
	}
	for _, want := range []*pb.WatchRunRequest{request, at(3, 0), at(4, 7), at(4, 7), request} {
		same(t, <-service.asked, want)
	}
}

func TestAWatchThatIsRefusedSaysSo(t *testing.T) {
	ctx, client, id := begin(t), connect(t, server), newID()
	shown := 0
	for _, err := range bridge.Watch(ctx, client, &pb.WatchRunRequest{RunId: id}) {
		refused(t, err, codes.NotFound, "RUN_NOT_FOUND")
		shown++
	}
	equal(t, shown, 1)
}

func TestAWatchEndsWithItsContextOrItsReader(t *testing.T) {
	test, client, id := begin(t), connect(t, server), newID()
	request := start(id)
	request.LeaseTtl = nil
	answer, err := client.StartRun(test, request)
	must(t, answer, err)
	for range bridge.Watch(test, client, &pb.WatchRunRequest{RunId: id}) {
		break
	}
	stopped, frames := errors.New("stopped"), 0
	ctx, stop := context.WithCancelCause(test)
	defer stop(nil)
	for _, err := range bridge.Watch(ctx, client, &pb.WatchRunRequest{RunId: id}) {
		if frames++; err != nil {
			equal(t, err, stopped)
		}
		stop(stopped)
	}
	if frames < 2 {
		t.Error("the end of the context was not shown")
	}
}
