mkdir -p gen
GOBIN="$PWD/bin" go install tool
PATH="$PWD/bin:$PATH" protoc -I proto --go_out=gen --go_opt=paths=source_relative \
    --go-grpc_out=gen --go-grpc_opt=paths=source_relative proto/runledger/v1/*.proto
