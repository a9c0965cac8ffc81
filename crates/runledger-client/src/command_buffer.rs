//! A buffer that sends commands together.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use runledger_proto::v1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::failure::{Failure, Kind, Repetition};

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
/// Each command should have a `request_id`: where all of a call have one, the call is sent again until it is answered. A
/// command that failed by itself as `OVERLOADED`, `STORE_UNAVAILABLE` or `DRAINING`, and so wrote nothing, is sent again in the
/// time of its call, before what was queued behind it. Where that time is over, where a call has no answer in it, and where
/// nobody knows what became of a command, what is queued behind fails as well and is not sent: no command goes before one that
/// may have to be queued again.
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

    /// Queues a command, once the buffer has room for it. Safe to cancel: to queue it is the last step.
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
/// made in halves: nothing of it was done. Commands that wrote nothing for a cause that passes are sent again in a call of
/// their own: those of the call that follow one of them on its run have failed with it.
async fn send(client: &mut Client, call: Vec<Queued>, call_wait_max: Duration) -> Result<(), Failure> {
    let (mut parts, deadline) = (vec![call], Instant::now() + call_wait_max);
    while let Some(mut part) = parts.pop() {
        let commands = part.iter().map(|queued| queued.command.clone()).collect();
        let request = v1::ApplyCommandsRequest { commands, view: None };
        match client.ask(&request, deadline).await {
            Ok(answer) => {
                let HandedOut { again, wait, failure } = hand_out(part, answer.results, deadline);
                if let Some(failure) = failure {
                    return Err(fail(parts.into_iter().rev().flatten(), failure));
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
            Err(Failure { kind: Kind::Unreachable, retry_after: Some(wait), .. }) if is_before(wait, deadline) => {
                sleep(wait).await;
                parts.push(part);
            }
            Err(failure) => return Err(fail(part.into_iter().chain(parts.into_iter().rev().flatten()), failure)),
        }
    }
    Ok(())
}

/// Fails commands for the same reason, which is given back.
fn fail(commands: impl Iterator<Item = Queued>, failure: Failure) -> Failure {
    for Queued { reply, .. } in commands {
        let _gone = reply.send(Err(failure.clone()));
    }
    failure
}

/// What is left to do once the results of a call were handed out.
struct HandedOut {
    /// The commands that are to be sent again.
    again: Vec<Queued>,
    /// The wait before.
    wait: Duration,
    /// Why nothing that is queued behind the call may be sent.
    failure: Option<Failure>,
}

/// Hands out the results of a call, but for those of commands that are to be sent again. They are sent all or not at all, and
/// not where nobody knows what became of a command: they might go before it.
fn hand_out(call: Vec<Queued>, results: Vec<v1::CommandResult>, deadline: Instant) -> HandedOut {
    let (mut wait, mut failure) = (Duration::ZERO, None);
    let results = results.into_iter().map(Ok).chain(iter::repeat_with(|| Err(cut_short())));
    let (passing, told): (Vec<_>, Vec<_>) = call.into_iter().zip(results).partition(|(_, result)| {
        let error = match result {
            Ok(result) => result.error.as_ref(),
            Err(short) => {
                failure.get_or_insert_with(|| short.clone());
                None
            }
        };
        match error.map(|error| (Repetition::from(error), &error.message)) {
            Some((Repetition::After(after), _)) => {
                wait = wait.max(after);
                true
            }
            Some((Repetition::Open, message)) => {
                failure.get_or_insert_with(|| Failure::own(Kind::Cut, message.clone()));
                false
            }
            Some((Repetition::Useless, _)) | None => false,
        }
    });
    if failure.is_none() && is_before(wait, deadline) {
        answer(told);
        return HandedOut { again: passing.into_iter().map(|(queued, _)| queued).collect(), wait, failure };
    }
    let message = passing.iter().find_map(|(_, result)| Some(result.as_ref().ok()?.error.as_ref()?.message.clone()));
    let failure = failure.or(message.map(|message| Failure::own(Kind::Unreachable, message)));
    answer(told.into_iter().chain(passing));
    HandedOut { again: Vec::new(), wait, failure }
}

fn answer(results: impl IntoIterator<Item = (Queued, Result<v1::CommandResult, Failure>)>) {
    for (Queued { reply, .. }, result) in results {
        // Whoever queued it may have gone.
        let _gone = reply.send(result);
    }
}

/// Whether a wait from now on ends before the deadline.
fn is_before(wait: Duration, deadline: Instant) -> bool {
    Instant::now().checked_add(wait).is_some_and(|end| end < deadline)
}

fn cut_short() -> Failure {
    Failure::own(Kind::Cut, "the server's answer has fewer results than there were commands".to_owned())
}

#[cfg(test)]
mod tests {
    use prost_types::Any;
    use tonic_types::pb::{ErrorInfo, RetryInfo, Status};

    use super::*;

    /// The results of a call whose commands failed by these reasons, each with the wait that it asks for, in seconds.
    fn failed(reasons: &[(&str, i64)]) -> Vec<v1::CommandResult> {
        let failed = |&(reason, seconds): &(&str, i64)| {
            let info = ErrorInfo { reason: reason.to_owned(), domain: "runledger".to_owned(), ..ErrorInfo::default() };
            let retry = RetryInfo { retry_delay: Some(prost_types::Duration { seconds, nanos: 0 }) };
            let any = |name: &str, value| Any { type_url: format!("type.googleapis.com/google.rpc.{name}"), value };
            let mut details = vec![any("ErrorInfo", info.encode_to_vec())];
            if seconds > 0 {
                details.push(any("RetryInfo", retry.encode_to_vec()));
            }
            let error = (!reason.is_empty()).then(|| Status { code: 8, message: String::new(), details });
            v1::CommandResult { error, ..v1::CommandResult::default() }
        };
        reasons.iter().map(failed).collect()
    }

    /// The places of the commands that are sent again, the wait before, and whether what is behind the call fails.
    fn sent_again(commands: usize, reasons: &[(&str, i64)]) -> (Vec<usize>, Duration, Option<Kind>) {
        let room = Arc::new(Semaphore::new(commands));
        let (call, mut replies): (Vec<Queued>, Vec<_>) = (0..commands)
            .map(|bytes| {
                let (reply, answer) = oneshot::channel();
                let room = room.clone().try_acquire_owned().unwrap();
                (Queued { command: v1::RunCommand::default(), bytes, reply, _room: room }, answer)
            })
            .unzip();
        let HandedOut { again, wait, failure } =
            hand_out(call, failed(reasons), Instant::now() + Duration::from_secs(10));
        let places: Vec<usize> = again.iter().map(|queued| queued.bytes).collect();
        for (place, reply) in replies.iter_mut().enumerate() {
            assert_eq!(reply.try_recv().is_err(), places.contains(&place), "{place} is answered or sent again");
        }
        (places, wait, failure.map(|failure| failure.kind))
    }

    #[test]
    fn commands_that_wrote_nothing_are_sent_again_unless_one_is_open_or_the_time_is_over() {
        let seconds = Duration::from_secs;
        let passing = [("OVERLOADED", 1), ("", 0), ("STORE_UNAVAILABLE", 3), ("RUN_NOT_FOUND", 0), ("DRAINING", 2)];
        assert_eq!(sent_again(5, &passing), (vec![0, 2, 4], seconds(3), None), "after the longest of their waits");
        assert_eq!(sent_again(2, &[("", 0), ("RUN_NOT_FOUND", 0)]), (vec![], seconds(0), None), "all is known");
        let open = [("OVERLOADED", 1), ("OUTCOME_UNKNOWN", 1), ("STORE_UNAVAILABLE", 1)];
        assert_eq!(sent_again(3, &open), (vec![], seconds(1), Some(Kind::Cut)), "nothing goes before what is open");
        assert_eq!(sent_again(2, &passing[..1]).2, Some(Kind::Cut), "nobody knows of what has no result");
        assert_eq!(sent_again(1, &[("DEADLINE", 0)]).0, [0], "while there is time");
        let late = [("OVERLOADED", 1), ("STORE_UNAVAILABLE", 11)];
        assert_eq!(sent_again(2, &late), (vec![], seconds(11), Some(Kind::Unreachable)), "all or none");
        assert_eq!(sent_again(1, &[("STORE_UNAVAILABLE", i64::MAX)]).2, Some(Kind::Unreachable));
        assert_eq!(sent_again(1, &[("OVERLOADED", 0)]), (vec![], seconds(0), None), "it asks for no wait");
    }
}
