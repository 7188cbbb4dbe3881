//! Judges, which decide about each text for an auditor.

use std::{any, borrow::Cow, fmt, ops::Range};

use serde::Deserialize;
use tower::{BoxError, Layer};

use crate::{Layered, layer::JudgeService};

/// Decides whether a text may pass.
///
/// Requests are judged as whole messages. The text of a streamed answer is judged in windows: each call gets the text that
/// is not released yet, and up to [`Judge::overlap`] bytes before it.
///
/// A stream is released as it is judged, and ends at a denial: the caller has seen the words before. Of a finding in several
/// words, these are its own first words, unless [`Judge::undecided`] withheld them. Without `stream`, the caller sees nothing
/// of a denied answer.
///
/// Each text is judged again with every request that repeats it, unless [`JudgePolicy::cache`](crate::JudgePolicy::cache) is set: a judge may keep a state, such
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
    /// Returns an error if the judge cannot decide. The [`JudgePolicy`](crate::JudgePolicy) of the judge says what happens then.
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
    /// Text that is not withheld reaches the caller, even if the next word completes a finding: with 0, a caller whose
    /// answer is denied for `I will kill you` has seen `I will kill`.
    fn undecided(&self, _text: &str) -> usize {
        self.overlap()
    }

    /// Number of bytes of new text per window. Costly judges are called less often with a larger number, and text is
    /// released later. With the default of 1, each piece of an answer is judged when it arrives.
    fn stride(&self) -> usize {
        1
    }

    /// Name for metrics, log lines and refusals, unless the [`JudgePolicy`](crate::JudgePolicy) has one. Default: the type's name.
    fn name(&self) -> Cow<'_, str> {
        let name = any::type_name::<Self>();
        let name = name.split('<').next().unwrap_or(name);
        name.rsplit("::").next().unwrap_or(name).into()
    }

    /// Wraps the judge in a tower layer, such as a limit, a cache or retries. [`JudgePolicy`](crate::JudgePolicy) has a timeout already.
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
        Layered::new(self, layer)
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
    /// The text is part of a message of a request: what the model has called is a prompt as well.
    pub(crate) is_message: bool,
}

impl<'a> Passage<'a> {
    /// Creates a passage without role, choice and location.
    pub fn new(direction: Direction, text: impl Into<Cow<'a, str>>) -> Self {
        let location = Cow::Borrowed("");
        let (text, role, choice) = (text.into(), None, None);
        let (has_more, is_history, is_message) = (false, false, false);
        Self { text, direction, role, choice, has_more, location, is_history, is_message }
    }

    pub(crate) fn describe<'b>(&'b self, text: Cow<'b, str>) -> Passage<'b> {
        let role = self.role.as_deref().map(Cow::Borrowed);
        Passage { text, role, location: Cow::Borrowed(&self.location), ..*self }
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
            is_message: self.is_message,
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
    /// Name and arguments of a tool that the model calls. In the messages of a request, judges of prompts are asked about
    /// them, too.
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
    /// Returns the role of a text of a request, if it is known.
    pub(crate) fn of(passage: &Passage<'_>) -> Option<Self> {
        match (passage.direction, passage.role.as_deref()) {
            (Direction::ToolResult, _) => Some(Self::Tool),
            (Direction::ToolCall, Some("assistant" | "model")) if passage.is_message => Some(Self::Assistant),
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
pub struct JudgeError(pub(crate) BoxError);

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
