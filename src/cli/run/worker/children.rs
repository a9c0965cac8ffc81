//! The children of a worker. Its own are waited for by those who started them. As the first process of a container it
//! is given the orphans of its programs as well, and takes their ends: nobody else does, and each would keep its place in
//! the table of processes until that is full.

use std::collections::HashSet;
use std::fs;
use std::io;

use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// The ids of the children that somebody waits for.
static OWN: Mutex<Option<HashSet<u32>>> = Mutex::new(None);

fn own() -> MutexGuard<'static, Option<HashSet<u32>>> {
    OWN.lock()
}

/// Starts a child whose end the caller takes. The lock is held until its id is known, so that it is at no moment taken
/// for an orphan.
pub(super) fn spawned(command: &mut Command) -> io::Result<Child> {
    let mut own = own();
    let child = command.spawn()?;
    own.get_or_insert_default().extend(child.id());
    Ok(child)
}

/// Takes note that a child's end was taken, or that nobody will wait for it any more.
pub(super) fn ended(id: u32) {
    own().get_or_insert_default().remove(&id);
}

/// Takes the ends of orphans from now on, where they come to this process.
///
/// # Errors
///
/// The system does not tell of children that end.
pub(super) fn takes_ends_of_orphans() -> io::Result<JoinSet<()>> {
    let mut tasks = JoinSet::new();
    if std::process::id() == 1 {
        let mut ends = signal(SignalKind::child())?;
        tasks.spawn(async move {
            loop {
                reap();
                if ends.recv().await.is_none() {
                    return;
                }
            }
        });
    }
    Ok(tasks)
}

/// Takes the ends of all children but the own ones.
fn reap() {
    let own = own();
    let is_own = |id: &u32| own.as_ref().is_some_and(|own| own.contains(id));
    for id in ended_children().into_iter().filter(|id| !is_own(id)) {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        // Another one may have been quicker.
        let _gone = pid.map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
    }
}

/// The children that have ended, by the system's table of processes. `waitid` would not say whose end it shows.
fn ended_children() -> Vec<u32> {
    let parent = std::process::id();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = processes.flatten().filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The name of the program stands in parentheses, and may hold anything.
        let mut fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        fields.next() == Some("Z") && fields.next().and_then(|id| id.parse().ok()) == Some(parent)
    })
    .collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_own_child_is_left_to_those_who_wait_for_it() {
        let mut child = spawned(&mut Command::new("true")).unwrap();
        let id = child.id().unwrap();
        // The end of a child can be seen before anybody has taken it.
        while !ended_children().contains(&id) {
            std::thread::yield_now();
        }
        reap();
        assert!(ended_children().contains(&id), "it is still there to be waited for");
        assert!(child.wait().await.unwrap().success());
        ended(id);
    }
}
