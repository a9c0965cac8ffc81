//! `runledger run update`.

use clap::Args;

use super::mutation::{Mutation, once};
use super::parts::attachments::Outcome;
use super::parts::bindings::Rebindings;
use super::parts::labels::Relabeling;
use super::parts::lease::Holder;
use super::parts::position::Phase;
use super::parts::rest::Terms;
use crate::cli::exit::{Stop, exit_codes, say};
use crate::cli::fields::{self, JsonSource};
use crate::text::{count, within};
use runledger_proto::v1;

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run update try-1 --label team=search --metadata '{\"step\": 2, \"page\": null}'\n  \
    runledger run update try-1 --metadata @metadata.json --expected-revision 1\n  \
    echo '{\"step\": 3}' | runledger run update try-1 --metadata - --tab-group-id ''\n\n\
    Flags that are not given leave their field alone, an empty ID clears it.\n",
    once!(),
    exit_codes!()
);

#[derive(Args, Debug)]
pub(super) struct UpdateArgs {
    /// The run
    run_id: String,
    #[command(flatten)]
    bindings: Rebindings,
    #[command(flatten)]
    labels: Relabeling,
    /// A merge patch on the run's own data: objects merge, null deletes
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    metadata: Option<JsonSource>,
    /// The iteration that the run has come to, where its lifecycle does not count them
    #[arg(long, value_name = "N", value_parser = count::<u32>)]
    iteration: Option<u32>,
    /// Priority of a pending run among those that wait for a claim, -100 to 100; with nothing else
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = within(-100..=100_i32))]
    priority: Option<i32>,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    phase: Phase,
    #[command(flatten)]
    outcome: Outcome,
    #[command(flatten)]
    holder: Holder,
    #[command(flatten)]
    mutation: Mutation,
}

impl UpdateArgs {
    pub(super) fn request(self) -> Result<(v1::UpdateRunRequest, Mutation), Stop> {
        let mut request = v1::UpdateRunRequest {
            run_id: self.run_id,
            metadata: fields::json("--metadata", self.metadata.as_ref())?,
            lease_epoch: self.holder.lease_epoch,
            phase: self.phase.name(),
            iteration: self.iteration,
            priority: self.priority,
            ..v1::UpdateRunRequest::default()
        };
        self.bindings.put(&mut request);
        self.labels.put(&mut request)?;
        request.result = self.outcome.read()?;
        self.terms.put(&mut request);
        Ok((request, self.mutation))
    }
}

/// Says what the update has led to, where its phase ends or suspends the run.
pub(super) fn tell((_request, answer): &(v1::UpdateRunRequest, v1::UpdateRunResponse)) {
    let Some(run) = &answer.run else { return };
    if run.status() == v1::RunStatus::Aborted {
        say(&format!("the update ended the run: {}: {}", run.reason_code, run.failure_reason));
    } else if let Some(suspension) = &run.suspension {
        say(&format!("the run is suspended: {}: {}", suspension.kind, suspension.reason));
    }
}
