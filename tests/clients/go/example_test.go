package bridge_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"google.golang.org/protobuf/proto"

	"example.com/bridge"
	pb "example.com/bridge/gen/runledger/v1"
)

func Example() {
	conn, err := bridge.Dial(os.Getenv("RUNLEDGER_TEST_SERVER")) // Such as 127.0.0.1:50051.
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client, ctx := pb.NewRunServiceClient(conn), context.Background()

	var id string
	request := &pb.StartRunRequest{TaskThreadId: "thread-1", Labels: map[string]string{"team": "search"}}
	err = bridge.Start(ctx, client, request, func(ctx context.Context, job *bridge.Job) error {
		id = job.Run.RunId
		progress := &pb.Progress{Done: 3, Total: 10, Message: "fetching"}
		_, err := job.Update(ctx, &pb.UpdateRunRequest{WorkflowId: proto.String("crawl"), Progress: progress})
		return err // The work itself: pass ctx on, and return an error when it ends the work early.
	})
	if lost := bridge.Detail[*pb.LeaseLostError](err); lost != nil {
		log.Fatalf("somebody else has the run, at epoch %d", lost.CurrentEpoch)
	} else if err != nil {
		log.Fatalf("%v (reason %q)", err, bridge.Reason(err))
	}

	for frame, err := range bridge.Watch(ctx, client, &pb.WatchRunRequest{RunId: id, AfterRevision: proto.Uint64(0)}) {
		if err != nil {
			log.Fatal(err)
		}
		switch frame := frame.Frame.(type) {
		case *pb.WatchRunResponse_Change_:
			fmt.Println(frame.Change.Event.Revision, frame.Change.Event.Type)
		case *pb.WatchRunResponse_End_:
			fmt.Println(frame.End.Run.Status)
		}
	}
	// Output:
	// 1 RUN_EVENT_TYPE_CREATED
	// 2 RUN_EVENT_TYPE_UPDATED
	// 3 RUN_EVENT_TYPE_COMPLETED
	// RUN_STATUS_COMPLETED
}
