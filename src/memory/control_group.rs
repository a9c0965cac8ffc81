//! The control group whose limit bounds this process: what it may take, and takes.

use std::fs;
use std::path::{Path, PathBuf};

/// A control group with a limit, of either version.
#[derive(Debug)]
pub(super) struct ControlGroup {
    folder: PathBuf,
    pub(super) limit: u64,
    files: &'static GroupFiles,
}

/// The names of a version's files, and of the lines of one of them.
#[derive(Debug)]
struct GroupFiles {
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// The memory that the system takes back before it ends a process of the group.
    reclaimed: [&'static str; 3],
}

const FIRST_VERSION: GroupFiles = GroupFiles {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimed: ["total_inactive_file", "total_active_file", "total_slab_reclaimable"],
};

const SECOND_VERSION: GroupFiles = GroupFiles {
    mount: "sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    reclaimed: ["inactive_file", "active_file", "slab_reclaimable"],
};

impl ControlGroup {
    /// The group that bounds this process; none where none has a limit.
    pub(super) fn of_process(root: &Path) -> Option<Self> {
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
        let smallest = groups.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, group) = (parts.next()?, parts.next()?);
            let files = match controllers {
                "" => &SECOND_VERSION,
                _ if controllers.split(',').any(|controller| controller == "memory") => &FIRST_VERSION,
                _ => return None,
            };
            // In a container, the group's path is the host's, and the mount is the group itself.
            let mount = root.join(files.mount);
            let inside = mount.join(group.trim_start_matches('/'));
            // The smallest limit of the group and of those around it holds.
            let around = inside.ancestors().take_while(|group| group.starts_with(&mount));
            let limited = around.filter_map(|folder| {
                Some(Self { limit: number(&folder.join(files.limit))?, folder: folder.to_owned(), files })
            });
            limited.min_by_key(|group| group.limit)
        });
        // A group without a limit has one that no machine reaches.
        smallest.min_by_key(|group| group.limit).filter(|group| group.limit < 1 << 60)
    }

    /// The bytes that all processes of the group take, with what the system holds for them, such as the buffers of
    /// sockets, and without the pages of files, which it takes back by itself.
    pub(super) fn used(&self) -> Option<u64> {
        let used = number(&self.folder.join(self.files.used))?;
        let stat = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        let reclaimed = stat.lines().filter_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            self.files.reclaimed.contains(&name).then(|| bytes.trim().parse::<u64>().ok())?
        });
        Some(used.saturating_sub(reclaimed.sum()))
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::memory) fn file(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(in crate::memory) fn machine(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("runledger-memory-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        root
    }

    fn of_control_group(root: &Path) -> Option<u64> {
        ControlGroup::of_process(root).map(|group| group.limit)
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
}
