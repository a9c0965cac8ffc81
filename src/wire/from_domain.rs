//! Domain values as messages.

/// A message that shows a value of the domain. Neither type is of this package, so that `From` cannot be implemented here.
pub trait FromDomain<T> {
    fn from_domain(value: T) -> Self;
}

/// Calls [`FromDomain`] on the value.
pub trait IntoMessage: Sized {
    fn into_message<M: FromDomain<Self>>(self) -> M {
        M::from_domain(self)
    }
}

impl<T> IntoMessage for T {}
