import type { ServiceError } from "@grpc/grpc-js";
import { ErrorInfo } from "./gen/google/rpc/error_details.js";
import { Status } from "./gen/google/rpc/status.js";
import { LifecycleTransitionError } from "./gen/runledger/v1/error.js";

/** The typed details of a refusal; both undefined when the server did not answer. */
export function details(error: ServiceError) {
  const packed = error.metadata?.get("grpc-status-details-bin")[0] as Buffer | undefined;
  const found = packed ? Status.decode(packed).details : [];
  const value = (name: string) => found.find((any) => any.typeUrl.endsWith(`/${name}`))?.value;
  const [info, transition] = [value("google.rpc.ErrorInfo"), value("runledger.v1.LifecycleTransitionError")];
  return {
    info: info && ErrorInfo.decode(info),
    transition: transition && LifecycleTransitionError.decode(transition),
  };
}
