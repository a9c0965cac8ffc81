//! Domain values as messages.

/// A message that shows a value of the domain. Both stand in packages of their own, so that `From` cannot be this.
pub trait FromDomain<T> {
    fn from_domain(value: T) -> Self;
}

/// The same, of the value.
pub trait IntoMessage: Sized {
    fn into_message<M: FromDomain<Self>>(self) -> M {
        M::from_domain(self)
    }
}

impl<T> IntoMessage for T {}
