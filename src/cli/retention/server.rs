//! What a server's namespaces have due, or would have by another retention.

use std::time::Duration;

use tokio::time::Instant;

use super::counted;
use super::flags::RetentionFlags;
use super::{DueRuns, nothing_yet, within};
use crate::cli::connect::Target;
use crate::cli::exit::{Stop, say};
use crate::domain::{Namespace, Status};
use runledger_client::{Client, Failure, Kind};
use runledger_proto::v1;

/// The most that a page holds.
const PAGE_MAX: i32 = 1_000;

/// What is due in a namespace, or in each of them.
pub(super) async fn due(
    target: &Target,
    wait: Duration,
    only: Option<&str>,
    keep: RetentionFlags,
) -> Result<Vec<DueRuns>, Stop> {
    let namespaces = match only {
        Some(name) => {
            let request = v1::GetNamespaceRequest { name: name.to_owned() };
            let answer = target.client()?.ask(&request, Instant::now() + wait).await.map_err(ended)?;
            vec![answer.namespace.unwrap_or_default()]
        }
        None => all(&mut target.client()?, wait).await.map_err(ended)?,
    };
    let mut found = Vec::new();
    for namespace in namespaces {
        let retention = within(keep.over(namespace.retention));
        let mut client = target.clone().within(&namespace.name).client()?;
        for (mut of, (keep_ms, statuses)) in
            nothing_yet(&Namespace::from(namespace.name.as_str()), &retention).into_iter().zip(retention.each())
        {
            let statuses: Vec<v1::RunStatus> = statuses.iter().map(|status| of_wire(*status)).collect();
            let keep = Duration::from_millis(keep_ms);
            let counted = counted::due(&mut client, wait, (&statuses, keep)).await.map_err(ended)?;
            (of.runs, of.events, of.more) = (counted.runs, counted.events, counted.more);
            found.push(of);
        }
        if retention.until_exported {
            say(&format!("{} keeps runs until they are exported: fewer may be due", namespace.name));
        }
    }
    match only.filter(|_| found.is_empty()) {
        Some(only) => Err(Stop::Usage(format!("--only {only}: it keeps its runs for ever"))),
        None => Ok(found),
    }
}

async fn all(client: &mut Client, wait: Duration) -> Result<Vec<v1::Namespace>, Failure> {
    let mut request = v1::ListNamespacesRequest { page_size: PAGE_MAX, ..v1::ListNamespacesRequest::default() };
    let mut all = Vec::new();
    loop {
        let page = client.ask(&request, Instant::now() + wait).await?;
        all.extend(page.namespaces);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return Ok(all);
        }
    }
}

/// Nothing is written, so that a call that was cut off leaves nothing open.
fn ended(failure: Failure) -> Stop {
    if failure.kind == Kind::Cut { Stop::Undone(failure.to_string()) } else { Stop::Failed(failure) }
}

fn of_wire(status: Status) -> v1::RunStatus {
    match status {
        Status::Pending => v1::RunStatus::Pending,
        Status::Running => v1::RunStatus::Running,
        Status::Completed => v1::RunStatus::Completed,
        Status::Aborted => v1::RunStatus::Aborted,
        Status::Failed => v1::RunStatus::Failed,
    }
}
