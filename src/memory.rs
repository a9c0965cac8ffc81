//! The memory of this process: how much there is, how much it takes, and which calls it takes on when little is left.

mod control_group;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use self::control_group::ControlGroup;

/// Interval between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Percent of the limit from which on no watch and no wait begins.
pub const TIGHT_PERCENT: u64 = 85;

/// Percent of the limit from which on nothing is written either.
pub const SCARCE_PERCENT: u64 = 92;

/// The memory that a part of the process takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
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
    /// The control group whose limit it is.
    group: Option<ControlGroup>,
    base: AtomicU64,
    resident: AtomicU64,
    pressure: AtomicU8,
}

impl Memory {
    /// The memory of a process that may take so many bytes; where none are given, what the control group lets it take.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Self {
        let group = if limit.is_none() { ControlGroup::of_process(Path::new("/")) } else { None };
        let memory = Self::within(limit.or(group.as_ref().map(|group| group.limit)), group);
        memory.take_note(resident());
        memory.set_base();
        memory
    }

    fn within(limit: Option<u64>, group: Option<ControlGroup>) -> Self {
        let (base, resident, pressure) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU8::new(0));
        Self { limit, group, base, resident, pressure }
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
    pub fn beside(&self, counted: &[MemoryUse]) -> Vec<MemoryUse> {
        let Some(in_use) = in_use() else { return Vec::new() };
        let counted: usize = counted.iter().map(|part| part.bytes).sum();
        let resident = usize::try_from(self.resident()).unwrap_or(usize::MAX);
        let part = |name, bytes| MemoryUse { name, bytes, bytes_max: None };
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
    pub fn base(&self) -> MemoryUse {
        let bytes = usize::try_from(self.base.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        MemoryUse { name: "process", bytes, bytes_max: None }
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
        // The group's limit is for its other processes as well, and for what the system holds for this one.
        let group = self.group.as_ref().and_then(ControlGroup::used);
        let now = pressure(group.map_or(resident, |used| used.max(resident)), limit);
        #[expect(clippy::as_conversions, reason = "the number of a variant")]
        self.pressure.store(now as u8, Ordering::Relaxed);
        if now > before {
            let what = refused(now);
            tracing::warn!(
                resident_bytes = resident,
                group_bytes = group,
                limit_bytes = limit,
                "memory is short: {what}"
            );
        } else if now < before && now == Pressure::None {
            tracing::info!(
                resident_bytes = resident,
                group_bytes = group,
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

/// Has the allocator give freed memory back in seconds. Without a thread of its own, it does so only while it is asked
/// for more: after a burst the process would count as full for as long as nothing is written because it is full.
pub fn give_back_freed() {
    if let Err(error) = tikv_jemalloc_ctl::background_thread::write(true) {
        tracing::debug!(%error, "freed memory is given back late");
    }
}

/// The bytes that this process has asked its allocator for, and not given back.
fn in_use() -> Option<usize> {
    // The numbers are those of the last look at them.
    tikv_jemalloc_ctl::epoch::advance().ok()?;
    tikv_jemalloc_ctl::stats::allocated::read().ok().filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::control_group::tests::{file, machine};
    use super::*;

    #[test]
    fn what_else_its_control_group_takes_counts_but_for_pages_of_files() {
        const MIB: u64 = 1 << 20;
        for (version, cgroup, folder, limit, used, total) in [
            ("v2", "0::/box\n", "sys/fs/cgroup/box", "memory.max", "memory.current", ""),
            (
                "v1",
                "4:memory:/box\n",
                "sys/fs/cgroup/memory/box",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_",
            ),
        ] {
            let root = machine(&format!("used-{version}"));
            let write = |name: &str, text: &str| file(&root, &format!("{folder}/{name}"), text);
            let pages = |mib: u64| {
                let (inactive, active) = (mib * MIB, 1);
                let pages = format!("{total}inactive_file {inactive}\n{total}active_file {active}\n");
                write("memory.stat", &format!("anon 1\n{pages}sock 5\n"));
            };
            file(&root, "proc/self/cgroup", cgroup);
            write(limit, &format!("{}\n", 1_000 * MIB));
            write(used, &format!("{}\n", 950 * MIB));
            pages(100);
            let group = ControlGroup::of_process(&root).unwrap();
            let memory = Memory::within(Some(group.limit), Some(group));
            memory.take_note(Some(100 * MIB));
            assert_eq!(memory.pressure(), Pressure::None, "{version}");
            pages(10);
            memory.take_note(Some(100 * MIB));
            assert_eq!(memory.pressure(), Pressure::Scarce, "{version}: sockets, or a neighbour");
            fs::remove_dir_all(root.join(folder)).unwrap();
            memory.take_note(Some(100 * MIB));
            assert_eq!(memory.pressure(), Pressure::None, "{version}: only the process tells");
            fs::remove_dir_all(&root).unwrap();
        }
    }

    #[test]
    fn watches_are_refused_first_and_then_writes() {
        let memory = Memory::within(Some(1_000), None);
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
