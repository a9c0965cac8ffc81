import grpc
from google.protobuf import message_factory
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from runledger.v1 import error_pb2, run_pb2

FILES = [error_details_pb2.DESCRIPTOR, error_pb2.DESCRIPTOR, run_pb2.DESCRIPTOR]
KINDS = {kind.full_name: kind for file in FILES for kind in file.message_types_by_name.values()}

def details(error: grpc.RpcError) -> dict:
    """A refusal's details by name, such as ErrorInfo. Without ErrorInfo, the call may have been applied."""
    status = rpc_status.from_call(error)
    known = [(KINDS[any.TypeName()], any.value) for any in status.details if any.TypeName() in KINDS] if status else []
    return {kind.name: message_factory.GetMessageClass(kind).FromString(value) for kind, value in known}
