//! The `runledger` binary.

use std::io;
use std::process::ExitCode;

use runledger::config::ambient;
use runledger::{cli, clock, private, stdio};
use rustix::process::{Resource, getrlimit};
use tikv_jemallocator::Jemalloc;
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// The stack of each thread, whatever the environment has for others.
const STACK: usize = 2 * 1024 * 1024;

fn runtime() -> io::Result<Runtime> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(ambient::worker_threads()).thread_stack_size(STACK).enable_all().build()
}

/// Descriptors without which the runtime cannot start: it would panic.
const DESCRIPTORS_MIN: u64 = 10;

fn main() -> ExitCode {
    stdio::say_panics();
    let _said = stdio::Flushed;
    private::keep_owners_rights();
    if let Some(files_max) = getrlimit(Resource::Nofile).current.filter(|files| *files < DESCRIPTORS_MIN) {
        stdio::err().say(&format!("runledger: the process may open {files_max} files at once: raise ulimit -n\n"));
        return ExitCode::FAILURE;
    }
    if let Err(sentence) = clock::admit() {
        stdio::err().say(&format!("runledger: {sentence}\n"));
        return ExitCode::FAILURE;
    }
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match runtime() {
        Ok(runtime) => {
            let code = runtime.block_on(cli::run(cli));
            // A task that still runs, such as a statement on a store that hangs, must not hold the process.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            stdio::err().say(&format!("runledger: the runtime cannot start: {error}\n"));
            ExitCode::FAILURE
        }
    }
}
