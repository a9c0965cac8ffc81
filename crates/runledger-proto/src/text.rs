//! Errors as people read them.

use std::error::Error;

/// An error with all its causes, on one line. Some errors repeat their cause, and the transport's says nothing.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut said = vec![error.to_string()];
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        let holds = |whole: &str, part: &str| {
            whole == part || whole.starts_with(&format!("{part}: ")) || whole.ends_with(&format!(": {part}"))
        };
        if said.last().is_some_and(|last| holds(&cause, last)) {
            said.pop();
        }
        if said.last().is_none_or(|last| !holds(last, &cause)) {
            said.push(cause);
        }
        source = error.source();
    }
    if said.len() > 1 {
        said.retain(|cause| cause != "transport error");
    }
    said.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Said(&'static str, #[source] Option<Box<Said>>);

    #[test]
    fn an_error_says_nothing_twice() {
        for (causes, said) in [
            (&["a"][..], "a"),
            (&["a", "b", "c"], "a: b: c"),
            (&["transport error", "connect error", "connect error: refused"], "connect error: refused"),
            (&["file is no database", "Error code 26: file is no database"], "Error code 26: file is no database"),
            (&["cannot open: denied", "denied"], "cannot open: denied"),
            (&["connect", "connection refused"], "connect: connection refused"),
            (&["transport error"], "transport error"),
        ] {
            let error = causes.iter().rev().fold(None, |source, text| Some(Box::new(Said(text, source))));
            assert_eq!(chain(&error.unwrap()), said);
        }
    }
}
