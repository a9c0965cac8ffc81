import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status
from runledger.v1.error_pb2 import LifecycleTransitionError, OwnershipError

KNOWN = {kind.DESCRIPTOR.full_name: kind for kind in (ErrorInfo, LifecycleTransitionError, OwnershipError)}

def details(error: grpc.RpcError) -> dict:
    """The typed details of a refusal by their full names; empty when the server did not answer."""
    status = rpc_status.from_call(error)
    packed = {any.TypeName(): any.value for any in status.details} if status else {}
    return {name: KNOWN[name].FromString(value) for name, value in packed.items() if name in KNOWN}
