//! Masking comes before anything else looks at a command's values: its digest is made after it, and limits count what
//! is kept.

use std::borrow::Cow;

use crate::domain::limits::{CALL_CONTENTS_BYTES_MAX, CONTENT_BYTES_MAX, METADATA_BYTES_MAX, METADATA_PATCH_BYTES_MAX};
use crate::domain::{Ask, Command, Content, Lifecycle, LifecycleFound, Metadata, Refusal, Request, Run, Violation};

/// The command without the values that its run's lifecycle says are never written down.
///
/// # Errors
///
/// What is kept is above its limits.
pub fn masked<'a>(
    run: Option<&Run>,
    command: &'a Command,
    lifecycle: LifecycleFound<'_>,
) -> Result<Cow<'a, Command>, Refusal> {
    let brings_values =
        command.ask.metadata().is_some() || command.ask.input().is_some() || command.ask.result().is_some();
    if !brings_values {
        return Ok(Cow::Borrowed(command));
    }
    let all;
    let lifecycle = match lifecycle {
        LifecycleFound::NotAsked => None,
        // The start is refused for it later, in the order of the checks, and nothing of it is kept.
        LifecycleFound::Missing if run.is_none() => return Ok(Cow::Borrowed(command)),
        // Somebody deleted the run's lifecycle by hand, and nobody knows what to mask: so it is everything.
        LifecycleFound::Missing => {
            all = Lifecycle { redact_keys: vec!["*".to_owned()], ..Lifecycle::default() };
            Some(&all)
        }
        LifecycleFound::There(declared) => {
            Some(&declared.lifecycle).filter(|lifecycle| !lifecycle.redact_keys.is_empty())
        }
    };
    let Some(lifecycle) = lifecycle else {
        let oversize = &command.oversize;
        return if oversize.is_empty() {
            Ok(Cow::Borrowed(command))
        } else {
            Err(Refusal::InvalidFields(oversize.clone()))
        };
    };
    let masked = mask(command, lifecycle);
    let oversize = match &masked {
        // Sizes are counted anew. What no JSON has is a fault where it is kept.
        Some(masked) => oversize(&masked.ask).into_iter().chain(unfit(command, lifecycle).cloned()).collect(),
        None => command.oversize.clone(),
    };
    match masked {
        _ if !oversize.is_empty() => Err(Refusal::InvalidFields(oversize)),
        Some(masked) => Ok(Cow::Owned(masked)),
        None => Ok(Cow::Borrowed(command)),
    }
}

/// The command with its values masked; none where there is none to mask.
fn mask(command: &Command, lifecycle: &Lifecycle) -> Option<Command> {
    let metadata = command.ask.metadata().and_then(|metadata| masked_metadata(lifecycle, metadata));
    let input = command.ask.input().and_then(|content| masked_content(lifecycle, content));
    let result = command.ask.result().and_then(|content| masked_content(lifecycle, content));
    if metadata.is_none() && input.is_none() && result.is_none() {
        return None;
    }
    let mut command = command.clone();
    command.ask.replace(metadata, input, result);
    let digest = command.digest();
    command.request = command.request.map(|request| Request { digest, ..request });
    Some(command)
}

fn masked_metadata(lifecycle: &Lifecycle, metadata: &Metadata) -> Option<Metadata> {
    let mut object = metadata.as_map().clone();
    lifecycle.mask(&mut object).then(|| Metadata::from(object))
}

fn masked_content(lifecycle: &Lifecycle, content: &Content) -> Option<Content> {
    masked_metadata(lifecycle, &content.object()).map(|object| Content::from(&object))
}

/// The faults of values that are kept, and that no JSON has.
fn unfit<'a>(command: &'a Command, lifecycle: &Lifecycle) -> impl Iterator<Item = &'a Violation> {
    command.oversize.iter().filter(|fault| fault.within.as_ref().is_some_and(|keys| !lifecycle.masks_within(keys)))
}

/// What is kept of a command's values and is above its limits.
fn oversize(ask: &Ask) -> Vec<Violation> {
    let metadata_max = if matches!(ask, Ask::Start(_)) { METADATA_BYTES_MAX } else { METADATA_PATCH_BYTES_MAX };
    let metadata = ask.metadata().map_or(0, Metadata::bytes);
    let contents = [("input", ask.input()), ("result", ask.result())];
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
