import type { ServiceError } from "@grpc/grpc-js";
import { BadRequest, ErrorInfo, ResourceInfo, RetryInfo } from "./gen/google/rpc/error_details.js";
import { Status } from "./gen/google/rpc/status.js";
import { LifecycleTransitionError, OwnershipError, RevisionMismatchError, RunIdConflictError } from "./gen/runledger/v1/error.js";
import { RunSummary } from "./gen/runledger/v1/run.js";

const GOOGLE = { BadRequest, ErrorInfo, ResourceInfo, RetryInfo };
const KINDS = { ...GOOGLE, LifecycleTransitionError, OwnershipError, RevisionMismatchError, RunIdConflictError, RunSummary };
export type Details = { [Name in keyof typeof KINDS]?: ReturnType<(typeof KINDS)[Name]["decode"]> };

/** A refusal's details by name, such as ErrorInfo. Without ErrorInfo, the call may have been applied. */
export function details(error: ServiceError): Details {
  const packed = error.metadata?.get("grpc-status-details-bin")[0] as Buffer | undefined;
  const named = (packed ? Status.decode(packed).details : []).map((any) => [any.typeUrl.split(".").pop()!, any.value] as const);
  const known = named.filter(([name]) => Object.hasOwn(KINDS, name));
  return Object.fromEntries(known.map(([name, value]) => [name, KINDS[name as keyof typeof KINDS].decode(value)]));
}
