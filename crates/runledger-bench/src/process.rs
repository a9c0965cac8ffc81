//! The memory and processor time of a process on this machine, as Linux tells them.

use std::time::Duration;
use std::{fs, io};

use super::BenchError;

/// Ticks of processor time in a second: the same on every Linux, whatever the kernel's own clock does.
const TICKS_PER_SECOND: u64 = 100;

/// Measures a process that somebody else started, if one was named.
#[derive(Debug)]
pub(super) struct Meter {
    pid: Option<u32>,
}

/// The resources that a process uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// Memory that is in use, in KiB.
    pub(super) resident_kib: u64,
    /// Processor time since it was started.
    pub(super) processor: Duration,
}

impl Usage {
    /// The number of processors that the process kept busy since `before`, which was `time` ago.
    pub(super) fn processors_since(&self, before: &Self, time: Duration) -> f64 {
        self.processor.saturating_sub(before.processor).as_secs_f64() / time.as_secs_f64()
    }
}

impl Meter {
    /// A meter of a process that can be looked at.
    pub(super) fn open(pid: Option<u32>) -> Result<Self, BenchError> {
        let meter = Self { pid };
        meter.usage()?;
        Ok(meter)
    }

    /// The usage of the process; none when no process was named.
    pub(super) fn usage(&self) -> Result<Option<Usage>, BenchError> {
        let Some(pid) = self.pid else { return Ok(None) };
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let usage = || {
            let noise = |file| io::Error::other(format!("/proc says nothing of use in {file}"));
            let resident_kib = resident(&read("status")?).ok_or_else(|| noise("status"))?;
            let processor = processor(&read("stat")?).ok_or_else(|| noise("stat"))?;
            Ok(Usage { resident_kib, processor })
        };
        usage().map(Some).map_err(|source| BenchError::Process { pid, source })
    }
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// User's and system's. The name in front may have spaces and brackets in it.
fn processor(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 1_000 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_processor_time_are_read_whatever_the_process_is_called() {
        assert_eq!(resident("Name:\tx\nVmPeak:\t  9 kB\nVmRSS:\t   1234 kB\n"), Some(1_234));
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0";
        assert_eq!(processor(stat), Some(Duration::from_secs(3)));
        assert_eq!((resident(""), processor("7 (x")), (None, None));
    }
}
