//! The memory of this process: how much there is, how much it takes, and which calls it takes on when little is left.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// Interval between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Percent of the limit from which on no watch and no wait begins.
pub const TIGHT_PERCENT: u64 = 85;

/// Percent of the limit from which on nothing is written either.
const SCARCE_PERCENT: u64 = 92;

/// A part of the process that takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part's name, for operators.
    pub name: &'static str,
    /// About the bytes that it takes.
    pub bytes: usize,
    /// The bytes that it takes at most; none where the number of connections or calls bounds it.
    pub bytes_max: Option<usize>,
}

/// How little memory is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Every call is taken on.
    None,
    /// No watch and no wait begins: each takes memory for long.
    Tight,
    /// Nothing is written either, but what ends work or keeps a lease.
    Scarce,
}

/// See the module.
#[derive(Debug)]
pub struct Memory {
    limit: Option<u64>,
    base: AtomicU64,
    resident: AtomicU64,
    pressure: AtomicU8,
}

impl Memory {
    /// The memory of a process that may take so many bytes; where none are given, what the control group lets it take.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Self {
        let limit = limit.or_else(|| of_control_group(Path::new("/")));
        let memory = Self { limit, base: AtomicU64::new(0), resident: AtomicU64::new(0), pressure: AtomicU8::new(0) };
        memory.take_note(resident());
        memory.set_base();
        memory
    }

    /// The bytes that the process may take, where that is known.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The bytes that the process has in memory, where the system tells.
    #[must_use]
    pub fn resident(&self) -> u64 {
        resident().unwrap_or_else(|| self.resident.load(Ordering::Relaxed))
    }

    /// What the process takes beside the parts that are counted: what stands in use elsewhere, and what the allocator has
    /// in memory without use. None where the process does not know.
    #[must_use]
    pub fn beside(&self, counted: &[Part]) -> Vec<Part> {
        let Some(in_use) = in_use() else { return Vec::new() };
        let counted: usize = counted.iter().map(|part| part.bytes).sum();
        let resident = usize::try_from(self.resident()).unwrap_or(usize::MAX);
        let part = |name, bytes| Part { name, bytes, bytes_max: None };
        vec![part("not_counted", in_use.saturating_sub(counted)), part("allocator", resident.saturating_sub(in_use))]
    }

    /// Takes the memory of now for what the process takes before it is called: its own code's, the runtime's and the
    /// open store's.
    pub fn set_base(&self) {
        let in_use = in_use().and_then(|bytes| u64::try_from(bytes).ok());
        self.base.store(in_use.unwrap_or_else(|| self.resident()), Ordering::Relaxed);
    }

    /// The part that the process takes before it is called.
    #[must_use]
    pub fn base(&self) -> Part {
        let bytes = usize::try_from(self.base.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        Part { name: "process", bytes, bytes_max: None }
    }

    /// How little is left, at the last look.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        match self.pressure.load(Ordering::Relaxed) {
            0 => Pressure::None,
            1 => Pressure::Tight,
            _ => Pressure::Scarce,
        }
    }

    /// Looks again and again. Never ends by itself.
    pub async fn follow(&self) {
        if self.limit.is_none() {
            return std::future::pending().await;
        }
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.take_note(resident());
        }
    }

    fn take_note(&self, resident: Option<u64>) {
        let (Some(resident), Some(limit)) = (resident, self.limit) else { return };
        self.resident.store(resident, Ordering::Relaxed);
        let before = self.pressure();
        let now = pressure(resident, limit);
        #[expect(clippy::as_conversions, reason = "the number of a variant")]
        self.pressure.store(now as u8, Ordering::Relaxed);
        if now > before {
            tracing::warn!(resident_bytes = resident, limit_bytes = limit, "memory is short: {}", refused(now));
        } else if now < before && now == Pressure::None {
            tracing::info!(
                resident_bytes = resident,
                limit_bytes = limit,
                "there is memory again: all calls are taken"
            );
        }
    }
}

fn refused(pressure: Pressure) -> &'static str {
    match pressure {
        Pressure::None => "all calls are taken",
        Pressure::Tight => "new watches and waits are refused",
        Pressure::Scarce => "new watches, waits and writes are refused",
    }
}

fn pressure(resident: u64, limit: u64) -> Pressure {
    let percent = resident.saturating_mul(100) / limit.max(1);
    if percent >= SCARCE_PERCENT {
        Pressure::Scarce
    } else if percent >= TIGHT_PERCENT {
        Pressure::Tight
    } else {
        Pressure::None
    }
}

/// The bytes of this process that are in memory, without those of files that it shares with others.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The bytes that this process has asked its allocator for, and not given back.
fn in_use() -> Option<usize> {
    // The numbers are those of the last look at them.
    tikv_jemalloc_ctl::epoch::advance().ok()?;
    tikv_jemalloc_ctl::stats::allocated::read().ok().filter(|bytes| *bytes > 0)
}

/// The limit of the control group that this process is in, of either version; none where there is none.
fn of_control_group(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limit = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // In a container, the group's path is the host's, and the mount is the group itself.
        let inside = root.join(mount).join(group.trim_start_matches('/'));
        let read = |group: &Path| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
        // The smallest limit of the group and of those around it holds.
        let around = inside.ancestors().take_while(|group| group.starts_with(root.join(mount)));
        around.filter_map(read).min()
    });
    // A group without a limit has one that no machine reaches.
    limit.min().filter(|limit| *limit < 1 << 60)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn file(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn machine(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("runledger-memory-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        root
    }

    #[test]
    fn the_smallest_limit_around_the_process_is_found_in_both_versions_of_control_groups() {
        let root = machine("v2");
        file(&root, "proc/self/cgroup", "0::/pods/pod-1/box\n");
        file(&root, "sys/fs/cgroup/pods/pod-1/box/memory.max", "max\n");
        assert_eq!(of_control_group(&root), None);
        file(&root, "sys/fs/cgroup/pods/pod-1/memory.max", "268435456\n");
        assert_eq!(of_control_group(&root), Some(256 << 20));
        fs::remove_dir_all(&root).unwrap();

        let root = machine("v1");
        file(&root, "proc/self/cgroup", "5:cpu,cpuacct:/box\n4:memory:/box\n");
        file(&root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(of_control_group(&root), None, "no limit");
        file(&root, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", "134217728\n");
        assert_eq!(of_control_group(&root), Some(128 << 20));
        fs::remove_dir_all(&root).unwrap();

        assert_eq!(of_control_group(Path::new("/no/such/machine")), None);
    }

    #[test]
    fn watches_are_refused_first_and_then_writes() {
        let memory = Memory {
            limit: Some(1_000),
            base: AtomicU64::new(0),
            resident: AtomicU64::new(0),
            pressure: AtomicU8::new(0),
        };
        for (resident, expected) in [
            (849, Pressure::None),
            (850, Pressure::Tight),
            (919, Pressure::Tight),
            (920, Pressure::Scarce),
            (2_000, Pressure::Scarce),
            (10, Pressure::None),
        ] {
            memory.take_note(Some(resident));
            assert_eq!(memory.pressure(), expected, "{resident}");
        }
    }

    #[test]
    fn the_system_tells_how_much_this_process_takes() {
        if cfg!(target_os = "linux") {
            assert!(resident().is_some_and(|bytes| bytes > 100_000));
        }
    }
}
