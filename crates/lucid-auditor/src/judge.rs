//! Judges: what an auditor asks about each text.

use std::{
    any,
    borrow::Cow,
    fmt,
    ops::Range,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use serde::Deserialize;
use tower::{BoxError, Layer, Service, ServiceExt as _};

use crate::{
    CacheOptions, Mode,
    cache::{Cache, Key},
};

/// Decides whether a text may pass.
///
/// Requests are judged as whole messages. The text of a streamed answer is judged in windows: each call gets the text that
/// is not released yet, and up to [`Judge::overlap`] bytes before it.
///
/// A stream is released as it is judged, and ends at a denial: the caller has seen the words before. Of a finding in several
/// words, these are its own first words, unless [`Judge::undecided`] withheld them. Without `stream`, the caller sees nothing
/// of a denied answer.
///
/// Each text is judged again with every request that repeats it, unless [`Policy::cache`] is set: a judge may keep a state, such
/// as a count of requests.
///
/// ```
/// use lucid_auditor::{Judge, JudgeError, Passage, Verdict};
///
/// struct NoCompetitors;
///
/// impl Judge for NoCompetitors {
///     async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
///         Ok(match passage.text.contains("Initech") {
///             true => Verdict::deny("competitor", "the text names a competitor"),
///             false => Verdict::Allow,
///         })
///     }
/// }
/// ```
pub trait Judge: Send + Sync + 'static {
    /// Judges a text.
    ///
    /// # Errors
    ///
    /// Returns an error if the judge cannot decide. The [`Policy`] of the judge says what happens then.
    fn judge(&self, passage: &Passage<'_>) -> impl Future<Output = Result<Verdict, JudgeError>> + Send;

    /// Length in bytes of the longest finding. As much text precedes the new text of each window, so that findings that arrive
    /// in pieces are complete in one window.
    fn overlap(&self) -> usize {
        128
    }

    /// Number of bytes at the end of `before`, the text that is decided, that precede the new text of a window. At most
    /// [`Judge::overlap`], which is also the default.
    fn context(&self, _before: &str) -> usize {
        self.overlap()
    }

    /// Number of bytes at the end of `text` that may be the beginning of a finding: they are withheld until more text has been
    /// judged, or the answer ends. At most [`Judge::overlap`], which is also the default.
    ///
    /// What is not withheld reaches the caller, even if the next word completes a finding: with 0, a caller whose answer is
    /// denied for `I will kill you` has seen `I will kill`.
    fn undecided(&self, _text: &str) -> usize {
        self.overlap()
    }

    /// Number of bytes of new text per window. Costly judges are called less often with a larger number, and text is
    /// released later. With the default of 1, each piece of an answer is judged when it arrives.
    fn stride(&self) -> usize {
        1
    }

    /// Name for metrics, log lines and refusals, unless the [`Policy`] has one. Default: the type's name.
    fn name(&self) -> Cow<'_, str> {
        let name = any::type_name::<Self>();
        let name = name.split('<').next().unwrap_or(name);
        name.rsplit("::").next().unwrap_or(name).into()
    }

    /// Wraps the judge in a tower layer, such as a limit, a cache or retries. [`Policy`] has a timeout already.
    ///
    /// ```
    /// # use lucid_auditor::Judge;
    /// use tower::ServiceBuilder;
    ///
    /// fn at_most_four_at_a_time(judge: impl Judge) -> impl Judge {
    ///     judge.layer(ServiceBuilder::new().concurrency_limit(4))
    /// }
    /// ```
    fn layer<L>(self, layer: L) -> Layered<Self, L::Service>
    where
        Self: Sized,
        L: Layer<JudgeService<Self>>,
    {
        let judge = Arc::new(self);
        Layered { service: layer.layer(JudgeService(Arc::clone(&judge))), judge }
    }
}

/// A text to judge.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Passage<'a> {
    /// The text, without JSON escapes.
    pub text: Cow<'a, str>,
    /// Part of the conversation that the text belongs to.
    pub direction: Direction,
    /// Role of the message, as the protocol spells it: `user`, `system`, `assistant`, `tool`.
    pub role: Option<Cow<'a, str>>,
    /// Index of the answer, if the caller asked for several (`n` above 1).
    pub choice: Option<u32>,
    /// Other text may follow, as in a stream: a word at the end is perhaps not complete.
    pub has_more: bool,
    /// Place in the body as a JSON Pointer (RFC 6901), such as `/messages/0/content`. Empty for text other than JSON.
    pub location: Cow<'a, str>,
    /// The text belongs to an earlier turn: its message precedes the last message of the assistant in a request.
    pub is_history: bool,
}

impl<'a> Passage<'a> {
    /// Creates a passage without role, choice and location.
    pub fn new(direction: Direction, text: impl Into<Cow<'a, str>>) -> Self {
        let location = Cow::Borrowed("");
        let (text, role, choice) = (text.into(), None, None);
        Self { text, direction, role, choice, has_more: false, location, is_history: false }
    }

    /// Returns a copy that borrows nothing.
    pub fn into_owned(self) -> Passage<'static> {
        Passage {
            text: self.text.into_owned().into(),
            direction: self.direction,
            role: self.role.map(|role| role.into_owned().into()),
            choice: self.choice,
            has_more: self.has_more,
            location: self.location.into_owned().into(),
            is_history: self.is_history,
        }
    }
}

/// Part of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Direction {
    /// Text for the model, including earlier answers and other content of a request.
    Prompt,
    /// Text of the model, including its reasoning.
    Completion,
    /// Name and arguments of a tool that the model calls.
    ToolCall,
    /// Result of a tool, which the model gets.
    ToolResult,
}

impl Direction {
    /// Returns the name for metrics and log lines: `prompt`, `completion`, `tool_call` or `tool_result`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Completion => "completion",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Author of a message of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// The application: also `instructions` (Responses) and `system` (Anthropic, Ollama).
    System,
    /// The application, as OpenAI's newer models call it.
    Developer,
    /// The user.
    User,
    /// The model: also `model` (Gemini).
    Assistant,
    /// Results of tools, with any spelling of the role.
    Tool,
}

impl Role {
    /// Returns the role of a prompt or a tool's result, if it is known.
    pub(crate) fn of(passage: &Passage<'_>) -> Option<Self> {
        match (passage.direction, passage.role.as_deref()) {
            (Direction::ToolResult, _) => Some(Self::Tool),
            (Direction::Completion | Direction::ToolCall, _) => None,
            (Direction::Prompt, Some("system")) => Some(Self::System),
            (Direction::Prompt, Some("developer")) => Some(Self::Developer),
            (Direction::Prompt, Some("user")) => Some(Self::User),
            (Direction::Prompt, Some("assistant" | "model")) => Some(Self::Assistant),
            (Direction::Prompt, Some("tool" | "function")) => Some(Self::Tool),
            (Direction::Prompt, _) => None,
        }
    }

    /// Returns the name: `system`, `developer`, `user`, `assistant` or `tool`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// Turns of a conversation that are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Turns {
    /// All.
    #[default]
    All,
    /// The last one, which begins with the last message of the assistant. A denial of an earlier text that is in the
    /// [cache](Policy::cache) has no consequence; its masks have. An earlier text that is not in the cache is judged.
    Last,
}

/// Decision of a judge.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The text may pass.
    Allow,
    /// The text must not pass.
    #[non_exhaustive]
    Deny {
        /// Name of the violated rule. A label of metrics: a fixed set of names.
        rule: Cow<'static, str>,
        /// Reason, for the caller. It must not repeat the text.
        message: Cow<'static, str>,
    },
    /// The text may pass once these parts are replaced.
    Mask(Vec<Span>),
}

impl Verdict {
    /// Creates a denial.
    pub fn deny(rule: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Deny { rule: rule.into(), message: message.into() }
    }
}

/// Part of a text to replace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// Bytes of [`Passage::text`]. Bounds within a character are moved outwards.
    pub range: Range<usize>,
    /// Name of the rule. A label of metrics: a fixed set of names.
    pub rule: Cow<'static, str>,
    /// Text to insert, such as `<CREDIT_CARD>`.
    pub replacement: Cow<'static, str>,
}

impl Span {
    /// Creates a span.
    pub fn new(
        range: Range<usize>,
        rule: impl Into<Cow<'static, str>>,
        replacement: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { range, rule: rule.into(), replacement: replacement.into() }
    }
}

/// A judge cannot decide. Like `anyhow::Error`, any error converts to it with `?`.
pub struct JudgeError(BoxError);

impl JudgeError {
    /// Creates an error with a message, which must not repeat the text.
    pub fn new(message: impl Into<BoxError>) -> Self {
        Self(message.into())
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for JudgeError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Debug for JudgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for JudgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// Treatment of a judge and its verdicts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Name for metrics, log lines and refusals. Default: [`Judge::name`].
    pub name: Option<String>,
    /// In `observe`, verdicts are only reported. An auditor in `observe` observes with all of its judges.
    pub mode: Mode,
    /// Consequence of an error or a timeout. Default: deny.
    pub on_failure: OnFailure,
    /// Time for one verdict. Default: 10 s.
    pub timeout: Duration,
    /// Texts that the judge is asked about. Default: all.
    pub directions: Option<Vec<Direction>>,
    /// Roles whose prompts and results of tools the judge is asked about. Default: all, as the caller chooses the roles. Texts
    /// without a role, or with an unknown one, are always judged; completions and calls of tools are subject to `directions`
    /// only.
    pub roles: Option<Vec<Role>>,
    /// Turns whose denials have consequences. Default: all.
    pub turns: Turns,
    /// Cache of verdicts on whole texts: requests repeat the conversation. Windows of streams and errors are not cached.
    ///
    /// Default: none, so that the judge sees every text. Only for judges whose verdict depends on nothing but text, direction
    /// and role: not for one that counts requests.
    pub cache: Option<CacheOptions>,
}

/// Consequence of an error or a timeout of a judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The text must not pass.
    #[default]
    Deny,
    /// The text may pass.
    Allow,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            name: None,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            timeout: Duration::from_secs(10),
            directions: None,
            roles: None,
            turns: Turns::All,
            cache: None,
        }
    }
}

impl Policy {
    /// Sets the name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the mode.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the consequence of a failure.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets the time for one verdict.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Limits the judge to some texts.
    #[must_use]
    pub fn with_directions(mut self, directions: impl IntoIterator<Item = Direction>) -> Self {
        self.directions = Some(directions.into_iter().collect());
        self
    }

    /// Limits the judge to prompts and results of tools of some roles.
    #[must_use]
    pub fn with_roles(mut self, roles: impl IntoIterator<Item = Role>) -> Self {
        self.roles = Some(roles.into_iter().collect());
        self
    }

    /// Sets the turns that are judged.
    #[must_use]
    pub fn with_turns(mut self, turns: Turns) -> Self {
        self.turns = turns;
        self
    }

    /// Caches verdicts.
    #[must_use]
    pub fn with_cache(mut self, cache: CacheOptions) -> Self {
        self.cache = Some(cache);
        self
    }
}

/// Judges of an auditor, with their policies. They judge in parallel.
#[derive(Clone, Default)]
pub struct Judges(Vec<Arc<Member>>);

/// A judge with its policy.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) policy: Policy,
    judge: Box<dyn DynJudge>,
    pub(crate) cache: Option<Cache>,
}

impl Judges {
    /// Creates an empty set: everything passes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a judge with the default policy.
    #[must_use]
    pub fn with(self, judge: impl Judge) -> Self {
        self.with_policy(judge, Policy::default())
    }

    /// Adds a judge.
    #[must_use]
    pub fn with_policy(mut self, judge: impl Judge, policy: Policy) -> Self {
        let name = policy.name.clone().unwrap_or_else(|| judge.name().into_owned());
        let cache = policy.cache.and_then(Cache::new);
        self.0.push(Arc::new(Member { name, policy, judge: Box::new(judge), cache }));
        self
    }

    /// Returns `true` if there is no judge.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns names and policies.
    pub fn policies(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.0.iter().map(|member| (member.name.as_str(), &member.policy))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.0.iter()
    }
}

impl fmt::Debug for Judges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge")
            .field("name", &self.name)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Member {
    /// Returns the verdict within the timeout. The one on a whole text is cached by its `key`.
    pub(crate) async fn judge(&self, passage: &Passage<'_>, key: Option<Key>) -> Result<Verdict, JudgeError> {
        let judge = self.judge.judge(passage);
        let verdict = async {
            let (Some(cache), Some(key)) = (&self.cache, key) else { return judge.await };
            let is_earlier = passage.is_history && self.policy.turns == Turns::Last;
            match cache.get_or(key, judge).await? {
                (Verdict::Deny { .. }, true) if is_earlier => Ok(Verdict::Allow),
                (verdict, _) => Ok(verdict),
            }
        };
        match tokio::time::timeout(self.policy.timeout, verdict).await {
            Ok(outcome) => outcome,
            Err(_) => Err(JudgeError::new(format!("no verdict within {:?}", self.policy.timeout))),
        }
    }

    /// Returns `true` if the judge is asked about texts of this direction and role.
    pub(crate) fn concerns(&self, passage: &Passage<'_>) -> bool {
        let Policy { directions, roles, .. } = &self.policy;
        directions.as_ref().is_none_or(|directions| directions.contains(&passage.direction))
            && Role::of(passage).zip(roles.as_ref()).is_none_or(|(role, roles)| roles.contains(&role))
    }

    pub(crate) fn overlap(&self) -> usize {
        self.judge.overlap()
    }

    pub(crate) fn context(&self, before: &str) -> usize {
        self.judge.context(before).min(self.judge.overlap())
    }

    pub(crate) fn undecided(&self, text: &str) -> usize {
        self.judge.undecided(text).min(self.judge.overlap())
    }

    pub(crate) fn stride(&self) -> usize {
        self.judge.stride()
    }
}

/// [`Judge`] as a trait object.
trait DynJudge: Send + Sync {
    fn judge<'a>(&'a self, passage: &'a Passage<'_>) -> BoxFuture<'a, Result<Verdict, JudgeError>>;
    fn overlap(&self) -> usize;
    fn context(&self, before: &str) -> usize;
    fn undecided(&self, text: &str) -> usize;
    fn stride(&self) -> usize;
}

impl<J: Judge> DynJudge for J {
    fn judge<'a>(&'a self, passage: &'a Passage<'_>) -> BoxFuture<'a, Result<Verdict, JudgeError>> {
        Box::pin(Judge::judge(self, passage))
    }

    fn overlap(&self) -> usize {
        Judge::overlap(self)
    }

    fn context(&self, before: &str) -> usize {
        Judge::context(self, before)
    }

    fn undecided(&self, text: &str) -> usize {
        Judge::undecided(self, text)
    }

    fn stride(&self) -> usize {
        Judge::stride(self)
    }
}

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
