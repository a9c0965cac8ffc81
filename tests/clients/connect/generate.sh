mkdir -p gen
protoc -I proto -I "$GOOGLEAPIS" --plugin=node_modules/.bin/protoc-gen-es --es_out=gen \
    --es_opt=target=ts,import_extension=js proto/runledger/v1/*.proto google/rpc/status.proto \
    google/rpc/error_details.proto
