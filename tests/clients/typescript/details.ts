import type { ServiceError } from "@grpc/grpc-js";
import * as google from "./gen/google/rpc/error_details.js";
import { Status } from "./gen/google/rpc/status.js";
import * as errors from "./gen/runledger/v1/error.js";
import { RunSummary } from "./gen/runledger/v1/run.js";

const KINDS = { ...google, ...errors, RunSummary };
type Kinds = typeof KINDS;
type Detail<Kind> = Kind extends { decode(bytes: Uint8Array): infer Message } ? Message : never;
export type Details = { [Name in keyof Kinds]?: Detail<Kinds[Name]> };

/** A refusal's details by name, such as ErrorInfo. Without ErrorInfo, the call may have been applied. */
export function details(error: ServiceError): Details {
  const packed = error.metadata?.get("grpc-status-details-bin")[0] as Buffer | undefined;
  const found: Record<string, unknown> = {};
  for (const { typeUrl, value } of packed ? Status.decode(packed).details : []) {
    const name = typeUrl.slice(typeUrl.lastIndexOf(".") + 1);
    const kind: unknown = Object.hasOwn(KINDS, name) ? KINDS[name as keyof Kinds] : undefined;
    if (kind && typeof kind === "object") found[name] = (kind as typeof RunSummary).decode(value);
  }
  return found;
}
