// What the tests share: clients of the server at RUNLEDGER_TEST_SERVER, what they called, and ways to cut them off.
package bridge_test

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"os"
	"slices"
	"sync"
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

var server = os.Getenv("RUNLEDGER_TEST_SERVER")

// A lease that lives through a machine that is busy with other things.
var ttl = durationpb.New(10 * time.Second)

func newID() string { return "go-" + rand.Text() }

func start(id string) *pb.StartRunRequest {
	return &pb.StartRunRequest{TaskThreadId: "thread", RunId: id, LeaseTtl: ttl}
}

// begin returns a context for one test, which runs beside the others.
func begin(t *testing.T) context.Context {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, target string, options ...grpc.DialOption) pb.RunServiceClient {
	conn, err := bridge.Dial(target, options...)
	must(t, conn, err)
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewRunServiceClient(conn)
}

// must ends the test where a call was not answered.
func must[A any](t *testing.T, answer A, err error) A {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func equal[V comparable](t *testing.T, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func same(t *testing.T, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func refused(t *testing.T, err error, code codes.Code, reason string) {
	t.Helper()
	if status.Code(err) != code || bridge.Reason(err) != reason {
		t.Errorf("got %v with the reason %q, want %v / %s", err, bridge.Reason(err), code, reason)
	}
}

// until waits for something that comes to pass by itself.
func until(t *testing.T, ctx context.Context, passed func() bool) {
	t.Helper()
	for !passed() {
		select {
		case <-ctx.Done():
			t.Fatal("it did not come to pass")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(t *testing.T, ctx context.Context, client pb.RunServiceClient, id string) *pb.Run {
	t.Helper()
	answer, err := client.GetRun(ctx, &pb.GetRunRequest{RunId: id})
	return must(t, answer, err).Run
}

// A call is one that a client made, as its interceptors see it.
type call struct {
	method   string
	deadline time.Duration
	request  proto.Message
	answer   proto.Message
	err      error
}

// A recorder remembers the calls of a client. Before each it asks `instead` whether to answer it with an error.
type recorder struct {
	mutex   sync.Mutex
	calls   []call
	instead func(method string, number int) error
}

func (r *recorder) option() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, path string, request, answer any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		deadline, _ := ctx.Deadline()
		made := call{method: path[len("/runledger.v1.RunService/"):], deadline: time.Until(deadline)}
		if r.instead != nil {
			made.err = r.instead(made.method, len(r.of(made.method)))
		}
		if made.err == nil {
			made.err = invoke(ctx, path, request, answer, conn, options...)
		}
		made.request, made.answer = proto.Clone(request.(proto.Message)), proto.Clone(answer.(proto.Message))
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.calls = append(r.calls, made)
		return made.err
	})
}

// of returns the calls of these methods.
func (r *recorder) of(methods ...string) (calls []call) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, call := range r.calls {
		if slices.Contains(methods, call.method) {
			calls = append(calls, call)
		}
	}
	return calls
}

func (r *recorder) ends() []call { return r.of("CompleteRun", "FailRun", "AbortRun") }

// proxy serves each connection with `handle`, which gets its number, and cuts it when that returns: what was sent until
// then arrives.
func proxy(t *testing.T, handle func(number int, client, server net.Conn)) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, listener, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for number := 0; ; number++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				left := make(chan struct{})
				go func() {
					defer close(left)
					defer server.Close()
					_, _ = io.Copy(server, client)
				}()
				handle(number, client, server)
				_ = client.(*net.TCPConn).CloseWrite()
				<-left
			}()
		}
	}()
	return listener.Addr().String()
}
