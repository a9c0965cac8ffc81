package bridge

import (
	"context"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Secured returns the options of Dial for a server with TLS whose CA is in a file. With the name of a token's file, every
// call has the token: it is read for each call, since the file has another one now and then.
func Secured(ca, token string) ([]grpc.DialOption, error) {
	tls, err := credentials.NewClientTLSFromFile(ca, "")
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(tls)}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(tokenFile(token)))
	}
	return options, nil
}

type tokenFile string

func (file tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := os.ReadFile(string(file))
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(token))}, err
}

// RequireTransportSecurity keeps gRPC from sending the token in plain text.
func (tokenFile) RequireTransportSecurity() bool { return true }
