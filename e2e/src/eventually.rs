//! Polling in tests.

use std::{fmt::Debug, time::Duration};

/// Far above any expected duration, also on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(2);
const INTERVAL: Duration = Duration::from_millis(20);

/// Outcome of one attempt of [`eventually`]: a `bool`, an `Option` or a `Result`.
pub trait Attempt {
    /// Value of a successful attempt.
    type Value;

    /// Returns the value, or a description of the failure, which may be empty.
    ///
    /// # Errors
    ///
    /// Returns an error if the attempt failed.
    fn into_result(self) -> Result<Self::Value, String>;
}

impl Attempt for bool {
    type Value = ();

    fn into_result(self) -> Result<(), String> {
        self.then_some(()).into_result()
    }
}

impl<T> Attempt for Option<T> {
    type Value = T;

    fn into_result(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: Debug> Attempt for Result<T, E> {
    type Value = T;

    fn into_result(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:?}"))
    }
}

/// Repeats `attempt` until it succeeds, and returns its value.
///
/// # Panics
///
/// Panics with `expected` and the last failure after two minutes.
pub async fn eventually<A: Attempt>(expected: &str, attempt: impl AsyncFnMut() -> A) -> A::Value {
    within(TIMEOUT, expected, attempt).await
}

#[expect(clippy::panic, reason = "a failure fails the test")]
async fn within<A: Attempt>(
    timeout: Duration,
    expected: &str,
    mut attempt: impl AsyncFnMut() -> A,
) -> A::Value {
    let mut last = String::new();
    let attempts = async {
        loop {
            match attempt().await.into_result() {
                Ok(value) => return value,
                Err(failure) => last = failure,
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    match tokio::time::timeout(timeout, attempts).await {
        Ok(value) => value,
        Err(_) => panic!("expected within {timeout:?}: {expected}; last: {last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn the_first_success_is_returned() {
        let mut attempts = 0..;
        assert_eq!(eventually("three", async || attempts.next().filter(|it| *it == 3)).await, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "expected within 50ms: a pod; last: \"Pending\"")]
    async fn a_timeout_reports_the_last_failure() {
        within(SHORT, "a pod", async || Err::<(), _>("Pending")).await;
    }

    #[tokio::test]
    #[should_panic(expected = "expected within 50ms: an answer; last: ")]
    async fn an_attempt_that_hangs_is_a_failure() {
        within(SHORT, "an answer", std::future::pending::<bool>).await;
    }
}
