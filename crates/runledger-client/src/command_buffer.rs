//! A buffer that sends commands together.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use runledger_proto::v1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::failure::{Failure, Kind};

/// Commands of one call at most: the server takes no more.
const COMMANDS_MAX: usize = 1_000;

/// Bytes of one call at most, a little less than the server takes.
const CALL_BYTES_MAX: usize = 1_000_000;

/// Bytes of a command's tag and length in a call.
const FRAME_BYTES: usize = 6;

/// Commands, and bytes of them, that a buffer holds at most.
const BUFFER_COMMANDS_MAX: usize = 4_096;
const BUFFER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Sends the commands that were queued while the last call was under way together in the next one: so load sets how many
/// go in one call, and without load nothing waits. A clone queues into the same buffer.
///
/// One call is under way at a time, so commands are decided in the order in which they were queued, those on one run
/// above all. A buffer holds at most 4,096 commands of 8 MiB, beyond which whoever queues waits.
///
/// Each command should have a `request_id`: where all of a call have one, the call is sent again until it is answered. Where
/// a call has no answer in its time, what was queued behind it fails with it, and is not sent: no command goes before one of
/// which nobody knows. A command that wrote nothing because the server or its store had too much to do is sent again in that
/// time, before what was queued behind it. One whose own `error` leaves its outcome open may be queued again.
///
/// # Examples
///
/// ```no_run
/// # use std::time::Duration;
/// # use runledger_client::{Client, CommandBuffer};
/// # use runledger_proto::v1::{CompleteRunRequest, RunCommand, run_command::Command};
/// # async fn example() -> Result<(), runledger_client::Failure> {
/// let client = Client::new("127.0.0.1:50051", None)?;
/// let (buffer, sends) = CommandBuffer::new(client, Duration::from_secs(15));
/// let complete = CompleteRunRequest {
///     run_id: "run-1".into(),
///     request_id: "complete-run-1".into(),
///     ..CompleteRunRequest::default()
/// };
/// let queued = async move { buffer.apply(RunCommand { command: Some(Command::Complete(complete)) }).await };
/// let (result, ()) = tokio::join!(queued, sends);
/// println!("{:?}", result?.disposition());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CommandBuffer {
    to: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
}

/// A command on its way, until its result is there.
#[derive(Debug)]
pub struct QueuedCommand(oneshot::Receiver<Result<v1::CommandResult, Failure>>);

#[derive(Debug)]
struct Queued {
    command: v1::RunCommand,
    bytes: usize,
    reply: oneshot::Sender<Result<v1::CommandResult, Failure>>,
    /// Its bytes in the buffer, until it is answered.
    _room: OwnedSemaphorePermit,
}

impl CommandBuffer {
    /// A buffer before a client, and the work of sending: it must be polled, and ends when the buffer and its clones are
    /// gone and the last command is answered. A call may take `call_wait_max`.
    pub fn new(mut client: Client, call_wait_max: Duration) -> (Self, impl Future<Output = ()> + Send) {
        let (to, mut queue) = mpsc::channel(BUFFER_COMMANDS_MAX);
        let sends = async move {
            let mut next = None;
            while let Some(first) = match next.take() {
                Some(first) => Some(first),
                None => queue.recv().await,
            } {
                let (call, behind) = gathered(first, &mut queue);
                next = behind;
                if let Err(failure) = send(&mut client, call, call_wait_max).await {
                    let message = format!("it was not sent, since a call before it failed: {}", failure.message);
                    let behind = next.take().into_iter().chain(iter::from_fn(|| queue.try_recv().ok()));
                    for Queued { reply, .. } in behind {
                        let _gone = reply.send(Err(Failure::own(Kind::Unreachable, message.clone())));
                    }
                }
            }
        };
        (Self { to, room: Arc::new(Semaphore::new(BUFFER_BYTES_MAX)) }, sends)
    }

    /// Queues a command, once the buffer has room for it.
    pub async fn queue(&self, command: v1::RunCommand) -> QueuedCommand {
        let bytes = command.encoded_len() + FRAME_BYTES;
        let held = u32::try_from(bytes.min(BUFFER_BYTES_MAX)).expect("8 MiB");
        let room = self.room.clone().acquire_many_owned(held).await.expect("the semaphore is never closed");
        let (reply, answer) = oneshot::channel();
        // Where nobody sends any more, the reply is dropped with the command.
        let _gone = self.to.send(Queued { command, bytes, reply, _room: room }).await;
        QueuedCommand(answer)
    }

    /// Queues a command and waits for its result, in which there may be an `error`.
    ///
    /// # Errors
    ///
    /// The call that it was in has no answer.
    pub async fn apply(&self, command: v1::RunCommand) -> Result<v1::CommandResult, Failure> {
        self.queue(command).await.result().await
    }
}

impl QueuedCommand {
    /// What became of the command, in which there may be an `error`.
    ///
    /// # Errors
    ///
    /// The call that it was in has no answer.
    pub async fn result(self) -> Result<v1::CommandResult, Failure> {
        let gone = |_| Failure::own(Kind::Cut, "what sends the buffer's commands has ended".to_owned());
        self.0.await.map_err(gone)?
    }
}

/// A call's worth of what is queued, and the command behind it that has no room in the call.
fn gathered(first: Queued, queue: &mut mpsc::Receiver<Queued>) -> (Vec<Queued>, Option<Queued>) {
    let (mut bytes, mut call) = (first.bytes, vec![first]);
    while call.len() < COMMANDS_MAX
        && let Ok(next) = queue.try_recv()
    {
        if bytes + next.bytes > CALL_BYTES_MAX {
            return (call, Some(next));
        }
        bytes += next.bytes;
        call.push(next);
    }
    (call, None)
}

/// Makes a call and hands out its results. A call that is too much for the server, though each of its commands is not, is
/// made in halves: nothing of it was done. The commands that wrote nothing for a cause that passes are sent again in a call
/// of their own; the server has let none go that follow one of these on its run.
async fn send(client: &mut Client, call: Vec<Queued>, call_wait_max: Duration) -> Result<(), Failure> {
    let (mut parts, deadline) = (vec![call], Instant::now() + call_wait_max);
    while let Some(mut part) = parts.pop() {
        let commands = part.iter().map(|queued| queued.command.clone()).collect();
        let request = v1::ApplyCommandsRequest { commands, view: None };
        match client.ask(&request, deadline).await {
            Ok(answer) => {
                let (mut again, mut wait) = (Vec::new(), Duration::ZERO);
                let results = answer.results.into_iter().map(Ok).chain(iter::repeat_with(|| Err(cut_short())));
                for (queued, result) in part.into_iter().zip(results) {
                    let error = result.as_ref().ok().and_then(|result| result.error.as_ref());
                    let passes_after = error.and_then(Failure::passes_after);
                    if let Some(after) = passes_after.filter(|after| Instant::now() + *after < deadline) {
                        wait = wait.max(after);
                        again.push(queued);
                    } else {
                        // Whoever queued it may have gone.
                        let _gone = queued.reply.send(result);
                    }
                }
                if !again.is_empty() {
                    sleep(wait).await;
                    parts.push(again);
                }
            }
            Err(failure) if failure.reason.as_deref() == Some("INVALID_FIELD") && part.len() > 1 => {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            }
            Err(Failure { kind: Kind::Unreachable, retry_after: Some(wait), .. })
                if Instant::now() + wait < deadline =>
            {
                sleep(wait).await;
                parts.push(part);
            }
            Err(failure) => {
                for Queued { reply, .. } in part.into_iter().chain(parts.into_iter().rev().flatten()) {
                    let _gone = reply.send(Err(failure.clone()));
                }
                return Err(failure);
            }
        }
    }
    Ok(())
}

fn cut_short() -> Failure {
    Failure::own(Kind::Cut, "the server's answer has fewer results than there were commands".to_owned())
}
