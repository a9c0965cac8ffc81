mkdir -p gen
protoc -I proto -I "$googleapis" --plugin=node_modules/.bin/protoc-gen-ts_proto --ts_proto_out=gen \
    --ts_proto_opt=outputServices=grpc-js,env=node,importSuffix=.js,forceLong=bigint \
    proto/runledger/v1/*.proto google/rpc/status.proto google/rpc/error_details.proto
