use std::fmt;
use std::marker::PhantomData;

/// An index of the records of type `R`, ordered by `K`: see [`Record`](crate::Record).
pub struct Index<R, K> {
    pub(crate) number: usize,
    of: PhantomData<fn() -> (R, K)>,
}

impl<R, K> Index<R, K> {
    /// The index of a number in the [`Schema`](crate::Schema). `#[derive(Record)]` calls this.
    #[doc(hidden)]
    pub const fn numbered(number: usize) -> Self {
        Self {
            number,
            of: PhantomData,
        }
    }
}

impl<R, K> Clone for Index<R, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, K> Copy for Index<R, K> {}

impl<R, K> fmt::Debug for Index<R, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Index").field(&self.number).finish()
    }
}
