//! What is wrong with a request's fields.

/// A violation: one field that is wrong in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The request's field, such as `labels["key"]`.
    pub field: String,
    /// The fault, with the limit.
    pub description: String,
    /// The keys that lead to the value that is at fault, within an object that may be masked; none: masking mends nothing.
    pub within: Option<Vec<String>>,
}

impl Violation {
    /// A violation of a field's rule.
    pub fn new(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self { field: field.into(), description: description.into(), within: None }
    }
}
