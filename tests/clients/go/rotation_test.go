package bridge_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"example.com/bridge"
	pb "example.com/bridge/gen/runledger/v1"
)

// A bearer reads the token for each call: the file has another one now and then.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := os.ReadFile(string(b))
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(token))}, err
}

func (bearer) RequireTransportSecurity() bool { return true }

// A place is a folder with a server's files, which a test may replace.
type place struct {
	folder string
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
}

func (p place) file(name string) string { return filepath.Join(p.folder, name) }

// replace puts a file in its place by one step.
func (p place) replace(t *testing.T, name string, text []byte) {
	t.Helper()
	next := p.file(name + ".next")
	if err := os.WriteFile(next, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, p.file(name)); err != nil {
		t.Fatal(err)
	}
}

func newPlace(t *testing.T) place {
	key := must2(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	der := must2(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	p := place{t.TempDir(), must2(x509.ParseCertificate(der))(t), key}
	p.replace(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return p
}

// certify gives the server another certificate and another key.
func (p place) certify(t *testing.T) *big.Int {
	key := must2(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	serial := must2(rand.Int(rand.Reader, big.NewInt(1<<62)))(t)
	template := &x509.Certificate{SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der := must2(x509.CreateCertificate(rand.Reader, template, p.ca, &key.PublicKey, p.key))(t)
	pkcs8 := must2(x509.MarshalPKCS8PrivateKey(key))(t)
	p.replace(t, "server.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	p.replace(t, "server.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	return serial
}

// token makes a token of this name beside those that there are.
func (p place) token(t *testing.T) []byte {
	command := exec.Command(os.Getenv("RUNLEDGER_TEST_BINARY"), "token", "new", "--name", "bridge", "--namespace", "default",
		"--role", "reporter", "--agent", "*", "--access-file", p.file("access.toml"))
	return must2(command.Output())(t)
}

func must2[A any](answer A, err error) func(*testing.T) A {
	return func(t *testing.T) A {
		t.Helper()
		return must(t, answer, err)
	}
}

// serve starts a server whose connections grow two seconds old, and returns its address and the lines of its log.
func (p place) serve(t *testing.T) (address string, log func(line string)) {
	command := exec.Command(os.Getenv("RUNLEDGER_TEST_BINARY"), "serve", "--store", "memory", "--listen", "127.0.0.1:0",
		"--tls-cert", p.file("server.pem"), "--tls-key", p.file("server.key"), "--access-file", p.file("access.toml"),
		"--reload-interval", "100ms", "--connection-age-max", "2s")
	out, err := command.StdoutPipe()
	must(t, out, err)
	errors, err := command.StderrPipe()
	must(t, errors, err)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	lines := make(chan string, 10_000)
	go func() {
		for scan := bufio.NewScanner(errors); scan.Scan(); {
			lines <- scan.Text()
		}
		close(lines)
	}()
	banner := must2(bufio.NewReader(out).ReadString('\n'))(t)
	words := strings.Fields(banner)
	return words[len(words)-1], func(text string) {
		t.Helper()
		deadline := time.After(30 * time.Second)
		for {
			select {
			case line, more := <-lines:
				if !more {
					t.Fatalf("the server ended and never said %q", text)
				}
				if strings.Contains(line, text) {
					return
				}
			case <-deadline:
				t.Fatalf("the server never said %q", text)
			}
		}
	}
}

func TestCertificatesAndTokensAreReplacedUnderLoadWithoutAFailedCall(t *testing.T) {
	ctx := begin(t)
	p := newPlace(t)
	p.certify(t)
	first := p.token(t)
	p.replace(t, "token", first)
	address, says := p.serve(t)

	roots := must2(credentials.NewClientTLSFromFile(p.file("ca.pem"), ""))(t)
	var handshakes atomic.Int64
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		handshakes.Add(1)
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	client := connect(t, "passthrough:///"+address, grpc.WithTransportCredentials(roots),
		grpc.WithPerRPCCredentials(bearer(p.file("token"))), grpc.WithContextDialer(dial))

	watched := newID()
	must2(client.StartRun(ctx, &pb.StartRunRequest{TaskThreadId: "thread", RunId: watched}))(t)
	var working, watching sync.WaitGroup
	var calls atomic.Int64
	done := make(chan struct{})
	for worker := range 8 {
		working.Go(func() {
			for number := 0; ; number++ {
				select {
				case <-done:
					return
				default:
				}
				id := fmt.Sprintf("%s-%d-%d", watched, worker, number)
				if _, err := client.StartRun(ctx, &pb.StartRunRequest{TaskThreadId: "thread", RunId: id}); err != nil {
					t.Errorf("StartRun: %v", err)
				}
				if _, err := client.CompleteRun(ctx, &pb.CompleteRunRequest{RunId: id}); err != nil {
					t.Errorf("CompleteRun: %v", err)
				}
				if worker == 0 {
					update := &pb.UpdateRunRequest{RunId: watched, Labels: map[string]string{"n": fmt.Sprint(number)},
						RequestId: fmt.Sprint("update-", number)}
					if _, err := client.UpdateRun(ctx, update); err != nil {
						t.Errorf("UpdateRun: %v", err)
					}
				}
				calls.Add(2)
			}
		})
	}
	last := make([]uint64, 2)
	for watcher := range last {
		watching.Go(func() {
			for frame, err := range bridge.Watch(ctx, client, &pb.WatchRunRequest{RunId: watched}) {
				if err != nil {
					t.Errorf("WatchRun: %v", err)
					return
				}
				if snapshot := frame.GetSnapshot(); snapshot != nil {
					last[watcher] = snapshot.Run.Revision
				}
				if event := frame.GetChange().GetEvent(); event != nil {
					if event.Revision != last[watcher]+1 {
						t.Errorf("revision %d came after %d", event.Revision, last[watcher])
					}
					last[watcher] = event.Revision
				}
			}
		})
	}

	for range 3 {
		p.certify(t)
		says("was read anew")
		time.Sleep(2 * time.Second)
	}
	// The second token is known before it is used, and the first one is used no more when it is taken away.
	second := p.token(t)
	says("new access rules hold")
	p.replace(t, "token", second)
	time.Sleep(time.Second)
	entries := strings.SplitAfterN(string(must2(os.ReadFile(p.file("access.toml")))(t)), "[[token]]", 3)
	p.replace(t, "access.toml", []byte("[[token]]"+entries[2]))
	says("new access rules hold")
	time.Sleep(2 * time.Second)
	p.replace(t, "old", first)
	old := connect(t, "passthrough:///"+address, grpc.WithTransportCredentials(roots),
		grpc.WithPerRPCCredentials(bearer(p.file("old"))))
	if _, err := old.GetRun(ctx, &pb.GetRunRequest{RunId: watched}); bridge.Reason(err) != "CREDENTIAL_INVALID" {
		t.Errorf("the first token is still taken: %v", err)
	}
	close(done)
	working.Wait()
	end := must2(client.CompleteRun(ctx, &pb.CompleteRunRequest{RunId: watched}))(t)
	watching.Wait()
	for _, revision := range last {
		equal(t, revision, end.Run.Revision)
	}
	if handshakes.Load() < 3 {
		t.Errorf("%d connections were made: no certificate was seen", handshakes.Load())
	}
	t.Logf("%d calls over %d connections", calls.Load(), handshakes.Load())
}
