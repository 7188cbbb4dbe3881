//! Judges in tower layers.

use std::{
    borrow::Cow,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use tower::{BoxError, Layer, Service, ServiceExt as _};

use crate::{Judge, JudgeError, Passage, Verdict};

/// A [`Judge`] as a tower service.
#[derive(Debug)]
pub struct JudgeService<J>(Arc<J>);

impl<J> Clone for JudgeService<J> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<J: Judge> Service<Passage<'static>> for JudgeService<J> {
    type Response = Verdict;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Verdict, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, passage: Passage<'static>) -> Self::Future {
        let judge = Arc::clone(&self.0);
        Box::pin(async move { judge.judge(&passage).await.map_err(|error| error.0) })
    }
}

/// A judge in a tower layer: see [`Judge::layer`].
#[derive(Debug)]
pub struct Layered<J, S> {
    judge: Arc<J>,
    service: S,
}

impl<J: Judge, S> Layered<J, S> {
    pub(crate) fn new(judge: J, layer: impl Layer<JudgeService<J>, Service = S>) -> Self {
        let judge = Arc::new(judge);
        Self { service: layer.layer(JudgeService(Arc::clone(&judge))), judge }
    }
}

impl<J, S> Judge for Layered<J, S>
where
    J: Judge,
    S: Service<Passage<'static>, Response = Verdict, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    fn judge(&self, passage: &Passage<'_>) -> impl Future<Output = Result<Verdict, JudgeError>> + Send {
        // Boxed for a limitation of the compiler: https://github.com/rust-lang/rust/issues/100013.
        let verdict = self.service.clone().oneshot(passage.clone().into_owned()).map_err(Into::into);
        let verdict: BoxFuture<'static, Result<Verdict, BoxError>> = verdict.boxed();
        verdict.map_err(JudgeError)
    }

    fn name(&self) -> Cow<'_, str> {
        self.judge.name()
    }

    fn overlap(&self) -> usize {
        self.judge.overlap()
    }

    fn context(&self, before: &str) -> usize {
        self.judge.context(before)
    }

    fn undecided(&self, text: &str) -> usize {
        self.judge.undecided(text)
    }

    fn stride(&self) -> usize {
        self.judge.stride()
    }
}
