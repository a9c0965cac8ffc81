//! Settings that are taken while the server runs: when the file of settings has changed, or the operator asks.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use crate::authority::WaitMax;
use crate::config::shown::{RELOADED, Setting};
use crate::config::{ServeConfig, file};
use crate::grpc::transport::{CallerLimits, Totals};
use crate::tasks::file_poll::Looks;
use crate::telemetry::{self, record, traces};

/// Reads the settings again, as they were read at the start.
pub type Reread = Arc<dyn Fn() -> Result<(ServeConfig, Vec<Setting>), String> + Send + Sync>;

/// The settings of a server, and how they are read again.
#[derive(Clone)]
pub struct Settings {
    /// The settings that hold.
    pub config: ServeConfig,
    /// The same, one by one.
    pub all: Vec<Setting>,
    /// Reads them again.
    pub reread: Reread,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The parts of a server whose settings may change.
pub(super) struct Reloaded {
    pub(super) totals: Arc<Totals>,
    pub(super) wait_max: WaitMax,
}

impl Reloaded {
    /// Follows the file of settings, for ever. A file that is wrong changes nothing.
    pub(super) async fn follow(self, settings: Settings, mut looks: Looks) {
        let Some(path) = settings.config.store.at.config.clone() else { return std::future::pending().await };
        let Settings { mut all, reread, .. } = settings;
        let started = all.clone();
        let mut seen = digest(path.clone()).await;
        // A file that was wrong is looked at again: what is wrong may be another file that it names.
        let mut wrong = None;
        loop {
            looks.next().await;
            let found = digest(path.clone()).await;
            if found == seen {
                wrong = None;
                continue;
            }
            match usable(reread.clone(), &all).await {
                Ok((config, settings)) => {
                    record::reload("config", true);
                    self.take(&config);
                    tell(&all, &started, &settings);
                    (all, seen, wrong) = (settings, found, None);
                }
                Err(mistakes) if wrong.as_ref() != Some(&(found, mistakes.clone())) => {
                    record::reload("config", false);
                    tracing::error!(mistakes, "the file of settings is wrong: they stay as they are");
                    wrong = Some((found, mistakes));
                }
                Err(_same) => {}
            }
        }
    }

    fn take(&self, config: &ServeConfig) {
        self.totals.limit_callers(CallerLimits {
            calls_per_second: config.caller_calls_per_second,
            open_calls: config.caller_open_calls,
        });
        self.wait_max.set(config.wait_max);
        traces::set_ratio(config.telemetry.trace_sample_ratio);
        if let Err(error) = telemetry::set_filter(&config.telemetry.log) {
            tracing::error!(%error, "the filter of log lines cannot be set");
        }
    }
}

/// The settings as they are now, where a server would start by them. Those that hold at once are taken whatever is wrong
/// with others that have not changed: a limit must not wait for a certificate.
async fn usable(reread: Reread, held: &[Setting]) -> Result<(ServeConfig, Vec<Setting>), String> {
    let (config, settings) = spawn_blocking(move || reread()).await.map_err(|error| error.to_string())??;
    if changed(held, &settings).all(|key| RELOADED.contains(&key)) {
        return Ok((config, settings));
    }
    match super::mistakes(&config).await.as_slice() {
        [] => Ok((config, settings)),
        mistakes => Err(mistakes.join("; ")),
    }
}

/// The keys of the settings that have changed.
fn changed<'a>(before: &'a [Setting], now: &'a [Setting]) -> impl Iterator<Item = &'a str> {
    let is_as_before =
        |setting: &&Setting| before.iter().any(|old| old.key == setting.key && old.values == setting.values);
    now.iter().filter(move |setting| !is_as_before(setting)).map(|setting| setting.key.as_str())
}

/// Says which settings have changed and hold, and which are others than those that the server was started with.
fn tell(before: &[Setting], started: &[Setting], now: &[Setting]) {
    let held: Vec<_> = changed(before, now).filter(|key| RELOADED.contains(key)).collect();
    let waiting: Vec<_> = changed(started, now).filter(|key| !RELOADED.contains(key)).collect();
    if !held.is_empty() {
        tracing::info!(settings = held.join(", "), "settings have changed, and hold");
    }
    if !waiting.is_empty() {
        tracing::warn!(settings = waiting.join(", "), "settings have changed, and hold after a restart");
    }
}

/// The file's digest; none where it cannot be read.
async fn digest(path: PathBuf) -> Option<[u8; 32]> {
    let read = spawn_blocking(move || file::text(&path)).await;
    read.ok()?.ok().map(|text| Sha256::digest(text).into())
}
