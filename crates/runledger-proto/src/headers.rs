//! The names of the headers that a call may carry besides gRPC's own.

/// Names the acting agent, when its id is visible ASCII.
pub const AGENT_ID: &str = "runledger-agent-id";

/// Names an acting agent with any id.
pub const AGENT_ID_BIN: &str = "runledger-agent-id-bin";

/// Names the namespace.
pub const NAMESPACE: &str = "runledger-namespace";
