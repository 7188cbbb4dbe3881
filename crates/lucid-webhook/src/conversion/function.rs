//! Conversion functions.

use tower::BoxError;

/// Return type of conversion functions: the object, or a `Result` of it.
#[diagnostic::on_unimplemented(
    message = "a conversion function returns `{T}` or `Result<{T}, E>`, not `{Self}`",
    note = "`E` has to be an error: `E: Into<Box<dyn std::error::Error + Send + Sync>>`"
)]
pub trait Converted<T> {
    /// Converts into a `Result`.
    ///
    /// # Errors
    ///
    /// The error of the conversion function.
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
    /// Return type of the function.
    type Answer: Converted<B>;
}

impl<F, A, B, R> ConversionFn<A, B> for F
where
    F: Fn(A) -> R + Send + Sync + 'static,
    R: Converted<B>,
{
    type Answer = R;
}
