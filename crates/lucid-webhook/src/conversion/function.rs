//! What may serve as a conversion function.

use crate::router::BoxError;

/// What a conversion function may return: the object, or a `Result` of it.
#[diagnostic::on_unimplemented(
    message = "a conversion function returns `{T}` or `Result<{T}, E>`, not `{Self}`",
    note = "`E` has to be an error: `E: Into<Box<dyn std::error::Error + Send + Sync>>`"
)]
pub trait Converted<T> {
    /// The object, or why there is none.
    ///
    /// # Errors
    ///
    /// When the function failed.
    fn converted(self) -> Result<T, BoxError>;
}

impl<T> Converted<T> for T {
    fn converted(self) -> Result<T, BoxError> {
        Ok(self)
    }
}

impl<T, E: Into<BoxError>> Converted<T> for Result<T, E> {
    fn converted(self) -> Result<T, BoxError> {
        self.map_err(Into::into)
    }
}

/// A function from one version of an object to another: `Fn(A) -> B` or `Fn(A) -> Result<B, E>`.
pub trait ConversionFn<A, B>: Fn(A) -> <Self as ConversionFn<A, B>>::Answer + Send + Sync + 'static {
    /// What it returns.
    type Answer: Converted<B>;
}

impl<F, A, B, R> ConversionFn<A, B> for F
where
    F: Fn(A) -> R + Send + Sync + 'static,
    R: Converted<B>,
{
    type Answer = R;
}
