//! Masking comes before anything else looks at a command's values: its digest is made after it, and limits count what
//! is kept.

use std::borrow::Cow;
use std::sync::Arc;

use super::refused_whatever_it_brings;
use crate::domain::command::Masked;
use crate::domain::context::Context;
use crate::domain::limits::{CALL_CONTENTS_BYTES_MAX, CONTENT_BYTES_MAX, METADATA_BYTES_MAX, METADATA_PATCH_BYTES_MAX};
use crate::domain::{
    Ask, Command, Content, Declared, LifecycleFound, Masks, Metadata, Prepared, Refusal, Request, Run, Violation,
};

/// The command without the values that its run's lifecycle says are never written down. A command that is refused whatever
/// it brings is refused before anything is masked.
///
/// # Errors
///
/// What is kept is above its limits, or the command is refused.
pub fn masked<'a>(run: Option<&Run>, command: &'a Command, context: &Context<'_>) -> Result<Cow<'a, Command>, Refusal> {
    let brought = command.ask.brought();
    if brought.metadata.is_none() && brought.input.is_none() && brought.result.is_none() {
        return Ok(Cow::Borrowed(command));
    }
    let (masks, before) = match context.sides.lifecycle {
        LifecycleFound::NotAsked => (None, None),
        // The start is refused for it later, in the order of the checks, and nothing of it is kept.
        LifecycleFound::Missing if run.is_none() => return Ok(Cow::Borrowed(command)),
        // Somebody deleted the run's lifecycle by hand, and nobody knows what to mask: so it is everything.
        LifecycleFound::Missing => (Some(Masks::all()), None),
        LifecycleFound::There(declared) => {
            (Some(&declared.masks).filter(|masks| !masks.is_empty()), command.prepared.masked_by(&declared.pin))
        }
    };
    let Some(masks) = masks else { return within_limits(Cow::Borrowed(command), &command.oversize) };
    refused_whatever_it_brings(run, command, context)?;
    if let Some(before) = before {
        return within_limits(Cow::Borrowed(before.command.as_ref().unwrap_or(command)), &before.oversize);
    }
    let (masked, oversize) = kept(command, masks);
    within_limits(masked.map_or(Cow::Borrowed(command), Cow::Owned), &oversize)
}

fn within_limits<'a>(command: Cow<'a, Command>, oversize: &[Violation]) -> Result<Cow<'a, Command>, Refusal> {
    if oversize.is_empty() { Ok(command) } else { Err(Refusal::InvalidFields(oversize.to_vec())) }
}

impl Command {
    /// Masks the values by what a run is pinned to, or would be.
    pub fn mask_by(&mut self, Declared { pin, masks, .. }: &Declared) {
        if !masks.is_empty() {
            let (command, oversize) = kept(self, masks);
            self.prepared.masked = Some(Arc::new(Masked { pin: pin.clone(), command, oversize }));
        }
    }
}

/// The command with its values masked, or none where there is none to mask; and what is kept and is above its limits.
fn kept(command: &Command, masks: &Masks) -> (Option<Command>, Vec<Violation>) {
    let masked = mask(command, masks);
    let oversize = match &masked {
        // Sizes are counted anew. What no JSON has is a fault where it is kept.
        Some(masked) => oversize(&masked.ask).into_iter().chain(unfit(command, masks).cloned()).collect(),
        None => command.oversize.clone(),
    };
    (masked, oversize)
}

/// The command with its values masked; none where there is none to mask.
fn mask(command: &Command, masks: &Masks) -> Option<Command> {
    let brought = command.ask.brought();
    let metadata = brought.metadata.and_then(|metadata| masked_metadata(masks, metadata));
    let input = brought.input.and_then(|content| masked_content(masks, content));
    let result = brought.result.and_then(|content| masked_content(masks, content));
    if metadata.is_none() && input.is_none() && result.is_none() {
        return None;
    }
    let mut command = Command { prepared: Prepared::default(), ..command.clone() };
    command.ask.replace(metadata, input, result);
    let digest = command.digest();
    command.request = command.request.map(|request| Request { digest, ..request });
    Some(command)
}

fn masked_metadata(masks: &Masks, metadata: &Metadata) -> Option<Metadata> {
    if !masks.finds(metadata.as_map()) {
        return None;
    }
    let mut object = metadata.as_map().clone();
    masks.mask(&mut object).then(|| Metadata::from(object))
}

fn masked_content(masks: &Masks, content: &Content) -> Option<Content> {
    masked_metadata(masks, &content.object()).map(|object| Content::from(&object))
}

/// The faults of values that are kept, and that no JSON has.
fn unfit<'a>(command: &'a Command, masks: &Masks) -> impl Iterator<Item = &'a Violation> {
    command.oversize.iter().filter(|fault| fault.within.as_ref().is_some_and(|keys| !masks.masks_within(keys)))
}

/// What is kept of a command's values and is above its limits.
fn oversize(ask: &Ask) -> Vec<Violation> {
    let metadata_max = if matches!(ask, Ask::Start(_)) { METADATA_BYTES_MAX } else { METADATA_PATCH_BYTES_MAX };
    let brought = ask.brought();
    let metadata = brought.metadata.map_or(0, Metadata::bytes);
    let contents = [("input", brought.input), ("result", brought.result)];
    let of = |(field, content): (&'static str, Option<&Content>)| Some((field, content?.text().len()));
    let contents: Vec<(&str, usize)> = contents.into_iter().filter_map(of).collect();
    let mut violations = Vec::new();
    let mut above = |field: &str, bytes: usize, max: usize, what: &str| {
        if bytes > max {
            violations
                .push(Violation::new(field, format!("is {bytes} bytes as compact JSON{what}; the limit is {max}")));
        }
    };
    above("metadata", metadata, metadata_max, "");
    for (field, bytes) in contents {
        above(field, bytes, CONTENT_BYTES_MAX, "");
        above(field, metadata + bytes, CALL_CONTENTS_BYTES_MAX, " with the metadata");
    }
    violations
}
