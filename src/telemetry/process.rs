//! The process itself, as the system tells of it. Where the system does not tell, neither do these metrics.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use tokio::time::Instant;

use super::gauges::observe;
use super::metrics;

/// Has the process told of from now on, which is taken for its beginning.
pub fn observe_process() {
    let began = Instant::now();
    observe(&metrics::PROCESS_UPTIME, move |tell| tell(began.elapsed().as_secs_f64(), &[]));
    observe(&metrics::PROCESS_CPU, |tell| {
        if let Some(seconds) = cpu_seconds() {
            tell(seconds, &[]);
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "a few digits of the bytes say enough")]
    observe(&metrics::PROCESS_MEMORY, |tell| {
        if let Some(bytes) = resident_bytes() {
            tell(bytes as f64, &[]);
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "there are thousands of files")]
    observe(&metrics::PROCESS_FILES, |tell| {
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            tell(files.count() as f64, &[]);
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "a limit of files is no large number")]
    observe(&metrics::PROCESS_FILES_MAX, |tell| {
        if let Some(max) = getrlimit(Resource::Nofile).current {
            tell(max as f64, &[]);
        }
    });
}

/// The processor time of all threads. In the file, the name of the program stands in parentheses and may hold anything;
/// `utime` and `stime` are the 12th and the 13th field after it.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    let ticks = f64::from(ticks()?) + f64::from(ticks()?);
    Some(ticks / f64::from(u32::try_from(clock_ticks_per_second()).ok()?))
}

/// The bytes in memory, those of files among them, as other programs tell of theirs. What counts towards the limit of
/// memory is less: the pages of files can be read again.
fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_processor_time_grows_with_work() {
        let before = cpu_seconds().unwrap();
        let began = cpu_seconds().unwrap();
        let mut sum = 0_u64;
        while cpu_seconds().unwrap() < began + 0.05 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(cpu_seconds().unwrap() > before);
    }
}
