//! Optional texts, as parts change and weigh them.

/// Applies a change to a text: an absent value leaves it, an empty one clears it.
pub(in crate::domain) fn set(text: &mut Option<String>, change: Option<&String>) {
    if let Some(value) = change {
        *text = Some(value.clone()).filter(|value| !value.is_empty());
    }
}

/// Leaves of a change what would have an effect on the text as it is.
pub(super) fn keep_new(change: &mut Option<String>, now: Option<&String>) {
    change.take_if(|value| *value == now.map_or("", String::as_str));
}

/// About how many bytes texts take in memory.
pub(in crate::domain) fn weight<const N: usize>(texts: [&Option<String>; N]) -> usize {
    texts.into_iter().flatten().map(String::len).sum()
}
