import type { ServiceError } from "@grpc/grpc-js";
import { BadRequest, ErrorInfo, ResourceInfo, RetryInfo } from "./gen/google/rpc/error_details.js";
import { Status } from "./gen/google/rpc/status.js";
import { LifecycleTransitionError, OwnershipError } from "./gen/runledger/v1/error.js";
import { RevisionMismatchError, RunIdConflictError } from "./gen/runledger/v1/error.js";
import { RunSummary } from "./gen/runledger/v1/run.js";

const RUNLEDGER = { LifecycleTransitionError, OwnershipError, RevisionMismatchError, RunIdConflictError, RunSummary };
const KINDS = { BadRequest, ErrorInfo, ResourceInfo, RetryInfo, ...RUNLEDGER };
export type Details = { [Name in keyof typeof KINDS]?: ReturnType<(typeof KINDS)[Name]["decode"]> };

/** A refusal's details by name, such as ErrorInfo. Without ErrorInfo, the call may have been applied. */
export function details(error: ServiceError): Details {
  const packed = error.metadata?.get("grpc-status-details-bin")[0] as Buffer | undefined;
  const found: Record<string, unknown> = {};
  for (const { typeUrl, value } of packed ? Status.decode(packed).details : []) {
    const name = typeUrl.slice(typeUrl.lastIndexOf(".") + 1);
    if (Object.hasOwn(KINDS, name)) found[name] = KINDS[name as keyof typeof KINDS].decode(value);
  }
  return found;
}
