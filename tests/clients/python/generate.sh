mkdir -p gen
python -m grpc_tools.protoc -I proto --python_out=gen --grpc_python_out=gen proto/runledger/v1/*.proto
