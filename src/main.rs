//! The `runledger` binary.

use std::process::ExitCode;

use runledger::{cli, stdio};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    stdio::say_panics();
    let _said = stdio::Flushed;
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
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
