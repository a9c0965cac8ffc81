//! A run's lease: who holds it, and who takes it or gives it up.

use std::time::Duration;

use clap::Args;

use super::row::Row;
use crate::cli::exit::exit_codes;
use crate::cli::fields::MaxRunning;
use crate::cli::run::mutation::{Mutation, once};
use crate::cli::words::until;
use crate::text::{count, seconds_or_duration};
use runledger_proto::{duration, v1};

pub(in crate::cli::run) const CLAIM: &str = concat!(
    "Examples:\n  \
    runledger run claim run-2 --lease-ttl 30s\n  \
    runledger run claim run-2 --max-running instance=1\n\n\
    The answer names the epoch of the lease: every later call of its holder gives it. Send a heartbeat every third of \
    the ttl.\n",
    once!(),
    exit_codes!()
);

pub(in crate::cli::run) const RELEASE: &str = concat!(
    "Example:\n  \
    runledger run release run-3 --lease-epoch 1\n  \
    runledger run release run-4 --lease-epoch 1 --not-begun\n\n\
    Whoever claims the run within one ttl goes on with it; else it ends as failed. Given back with --not-begun, it \
    waits for the next claim like a pending run.\n",
    once!(),
    exit_codes!()
);

/// The flag by which the holder of a run's lease proves that it holds it.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct Holder {
    /// The epoch of the lease that you hold, where the run has one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = count::<u64>)]
    pub(in crate::cli::run) lease_epoch: u64,
}

#[derive(Args, Debug)]
pub(in crate::cli::run) struct ClaimArgs {
    /// The run
    run_id: String,
    /// Time that the lease lasts without a heartbeat
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration, default_value = "30s")]
    lease_ttl: Duration,
    /// Refuse unless the run is at this epoch (0: it never had a lease)
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    expected_epoch: Option<u64>,
    /// Refuse to start a pending run while N (1 to 100) with the same value of this label are running that were
    /// claimed so
    #[arg(long, value_name = "LABEL=N")]
    max_running: Option<MaxRunning>,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(in crate::cli::run) struct ReleaseArgs {
    /// The run
    run_id: String,
    /// The epoch of the lease that you hold
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    lease_epoch: u64,
    /// The run was claimed and nothing was done: it is ready for the next claim, as if it had not been claimed
    #[arg(long)]
    not_begun: bool,
    #[command(flatten)]
    mutation: Mutation,
}

impl ClaimArgs {
    pub(in crate::cli::run) fn request(self) -> (v1::ClaimRunRequest, Mutation) {
        let request = v1::ClaimRunRequest {
            run_id: self.run_id,
            lease_ttl: Some(duration(self.lease_ttl)),
            expected_epoch: self.expected_epoch,
            max_running: self.max_running.as_ref().map(MaxRunning::message),
            ..v1::ClaimRunRequest::default()
        };
        (request, self.mutation)
    }
}

impl ReleaseArgs {
    pub(in crate::cli::run) fn request(self) -> (v1::ReleaseRunRequest, Mutation) {
        let request = v1::ReleaseRunRequest {
            run_id: self.run_id,
            lease_epoch: self.lease_epoch,
            not_begun: self.not_begun,
            ..v1::ReleaseRunRequest::default()
        };
        (request, self.mutation)
    }
}

pub(super) const ROWS: &[Row] = &[Row::said("lease", &[], |run| run.lease.as_ref().map(lease).unwrap_or_default())];

/// Such as `epoch 2, ttl 30s, until 2026-11-22T10:00:00.000000Z`.
fn lease(lease: &v1::Lease) -> String {
    let ttl = lease.ttl.as_ref().map(|ttl| format!(", ttl {ttl}")).unwrap_or_default();
    let until = until(lease.expires_at.as_ref());
    let released = if lease.released { ", released" } else { "" };
    let resting = if lease.resting { ", resting" } else { "" };
    format!("epoch {}{ttl}{until}{released}{resting}", lease.epoch)
}
