//! The flags that name the server to call, the acting agent, and the time to wait for an answer.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tokio::time::Instant;

use super::ending::Stop;
use super::fields::time_limit;
use runledger_client::HostPort;
use runledger_client::{Call, Client};

/// Time that a call may take where it has no limit of its own.
pub(super) const CALL_WAIT_MAX: Duration = Duration::from_secs(10);

/// The server that a command calls, and the agent that it calls as.
#[derive(Args, Debug)]
pub(super) struct Server {
    /// The server's address; or several with commas, replicas of one ledger: the next is called where one does not
    /// serve
    #[arg(
        long,
        env = "RUNLEDGER_SERVER",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:50051",
        value_delimiter = ',',
        help_heading = "Connection"
    )]
    server: Vec<HostPort>,

    /// The agent that acts: it owns what it starts, and others' runs are closed to it
    #[arg(long = "as", env = "RUNLEDGER_AGENT_ID", value_name = "AGENT", value_parser = NonEmptyStringValueParser::new(),
          help_heading = "Connection")]
    acting_agent: Option<String>,
}

impl Server {
    pub(super) fn client(&self) -> Result<Client, Stop> {
        let servers: Vec<_> = self.server.iter().map(HostPort::as_str).collect();
        Ok(Client::new(&servers.join(","), self.acting_agent.as_deref())?)
    }
}

/// The server of a command whose calls are answered at once.
#[derive(Args, Debug)]
pub(super) struct Caller {
    #[command(flatten)]
    server: Server,

    /// Time to wait for an answer: seconds, or such as 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = time_limit, help_heading = "Connection")]
    timeout: Duration,
}

impl Caller {
    pub(super) fn client(&self) -> Result<Client, Stop> {
        self.server.client()
    }

    /// Makes a call.
    pub(super) async fn ask<C: Call>(&self, client: &mut Client, call: &C) -> Result<C::Answer, Stop> {
        Ok(client.ask(call, Instant::now() + self.timeout).await?)
    }
}
