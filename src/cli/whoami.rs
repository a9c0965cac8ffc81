//! `runledger whoami`: who one is for a server, and what one may do there.

use clap::Args;

use super::connect::Caller;
use super::exit::{Stop, exit_codes};
use super::output::{Format, Out, Output};
use super::words::principal;
use runledger_proto::v1;

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger whoami                   is the token good, and what is it good for?\n  \
    runledger whoami --output json\n\n\
    What is granted holds in the namespaces that are named with it. A refusal as AGENT_DENIED, ROLE_DENIED or \
    NAMESPACE_DENIED means that it is not among it.\n",
    exit_codes!()
);

#[derive(Args, Debug)]
pub(super) struct WhoamiArgs {
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(args: WhoamiArgs) -> Result<(), Stop> {
    let answer = args.caller.ask(&mut args.caller.client()?, &v1::WhoAmIRequest {}).await?;
    let mut out = Out::new();
    match args.format.output {
        Output::Json => out.json(&answer)?,
        Output::Table => out.pairs(&pairs(&answer))?,
    }
    Ok(out.flush()?)
}

fn pairs(answer: &v1::WhoAmIResponse) -> Vec<Vec<String>> {
    let caller = answer.principal.clone().unwrap_or_default();
    let mut pairs = vec![("caller", principal(&caller))];
    if !caller.issuer.is_empty() {
        pairs.push(("issuer", caller.issuer.clone()));
    }
    if answer.believed {
        pairs.push(("may", "everything: the server asks for no credential and believes every caller".to_owned()));
    } else if answer.grants.is_empty() {
        pairs.push(("may", "nothing: nothing was granted".to_owned()));
    }
    pairs.extend(answer.grants.iter().map(|grant| ("may", granted(grant))));
    pairs.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect()
}

/// Such as `reporter in default, as ci-*`.
fn granted(grant: &v1::Grant) -> String {
    let roles: Vec<String> = grant.roles().map(role).collect();
    let agents = if grant.agents.is_empty() { "no agent".to_owned() } else { grant.agents.join(", ") };
    format!("{} in {}, as {agents}", roles.join(" and "), grant.namespaces.join(", "))
}

fn role(role: v1::Role) -> String {
    let name = role.as_str_name();
    name.strip_prefix("ROLE_").unwrap_or(name).to_lowercase()
}
