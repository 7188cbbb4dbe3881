//! Asks the judges about a text.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, join_all, ready},
};
use hyper::StatusCode;
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use crate::{
    AuditMode, Direction, Judges, OnFailure, Passage, Role, Span, Verdict,
    cache::Key,
    policy::Member,
    protocol::{BLOCKED, JUDGE_FAILED},
    telemetry::Telemetry,
};

/// Maximum number of verdicts in progress that no exchange waits for. Beyond it, observing judges are not called.
static OBSERVED: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(256)));

/// Maximum length of a name or index in a message to the caller.
const MAX_STEP: usize = 32;

/// The judges of one exchange. A reload affects the next one.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    pub(crate) judges: Judges,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) mode: AuditMode,
    /// Overrides that of each judge.
    pub(crate) on_failure: Option<OnFailure>,
    /// Overrides that of each judge.
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allow,
    Deny(Denial),
    Mask(Vec<Span>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    /// [`BLOCKED`] by a judge, or the reason why there is no verdict.
    pub(crate) kind: &'static str,
    pub(crate) rule: Cow<'static, str>,
    pub(crate) message: String,
}

impl Denial {
    /// Denies what cannot be judged.
    pub(crate) fn unjudged(kind: &'static str, message: String) -> Self {
        Self { kind, rule: Cow::Borrowed(kind), message }
    }

    pub(crate) fn irreplaceable(masks: &[Span], place: &str) -> Self {
        let rule = masks.first().map(|mask| mask.rule.clone()).unwrap_or_default();
        let message = format!("{rule} cannot be replaced in {place}");
        Self { kind: BLOCKED, rule, message }
    }

    /// Returns the status of the refusal. Clients retry most statuses from 500 on, which does not help what cannot be judged.
    pub(crate) fn status(&self, direction: Direction) -> StatusCode {
        match (self.kind, direction) {
            (BLOCKED, _) => StatusCode::FORBIDDEN,
            (JUDGE_FAILED, Direction::Prompt | Direction::ToolResult) => StatusCode::SERVICE_UNAVAILABLE,
            (JUDGE_FAILED, Direction::Completion | Direction::ToolCall) => StatusCode::BAD_GATEWAY,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

impl std::error::Error for Denial {}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Panel {
    pub(crate) fn judge<'a>(&'a self, passage: &'a Passage<'_>) -> BoxFuture<'a, Outcome> {
        let concerned: Vec<_> = self.judges.iter().filter(|member| member.concerns(passage)).collect();
        let key = concerned.iter().any(|member| member.cache.is_some()).then(|| Key::of(passage));
        let asked = concerned.into_iter().map(move |member| async move {
            let outcome = self.ask(member, passage, key).await;
            if !self.observes_aside(member) {
                self.report(member, passage, &outcome);
            }
            if self.enforces(member) { outcome } else { Outcome::Allow }
        });
        Box::pin(join_all(asked).map(Outcome::join))
    }

    /// Returns `true` if verdicts of this judge have consequences.
    pub(crate) fn enforces(&self, member: &Member) -> bool {
        self.mode == AuditMode::Enforce && member.policy.mode == AuditMode::Enforce
    }

    /// Returns `true` for a judge that observes while others enforce: nothing waits for it.
    pub(crate) fn observes_aside(&self, member: &Member) -> bool {
        self.mode == AuditMode::Enforce && member.policy.mode == AuditMode::Observe
    }

    /// Calls one judge. The verdict of a judge that observes aside is reported later. Whole texts have a key.
    pub(crate) fn ask<'a>(
        &'a self,
        member: &'a Arc<Member>,
        passage: &'a Passage<'_>,
        key: Option<Key>,
    ) -> BoxFuture<'a, Outcome> {
        if !self.observes_aside(member) {
            return Box::pin(self.outcome(member, passage, key));
        }
        match Arc::clone(&OBSERVED).try_acquire_owned() {
            Ok(permit) => {
                let (panel, member, passage) =
                    (self.clone(), Arc::clone(member), passage.clone().into_owned());
                let asked = async move {
                    let outcome = panel.outcome(&member, &passage, key).await;
                    panel.report(&member, &passage, &outcome);
                    drop(permit);
                };
                tokio::spawn(asked.in_current_span());
            }
            Err(_) => self.telemetry.count_failure(&member.name),
        }
        Box::pin(ready(Outcome::Allow))
    }

    async fn outcome(&self, member: &Member, passage: &Passage<'_>, key: Option<Key>) -> Outcome {
        let name = member.name.as_str();
        // One for each window of a stream would cost more than the verdicts.
        let span = match passage.has_more {
            true => tracing::Span::none(),
            false => tracing::info_span!(
                "verdict",
                judge = name,
                direction = passage.direction.as_str(),
                bytes = passage.text.len(),
                action = tracing::field::Empty,
            ),
        };
        let begun = Instant::now();
        let timeout = self.timeout.unwrap_or(member.policy.timeout);
        let verdict = member.judge(passage, key, timeout).instrument(span.clone()).await;
        self.telemetry.observe_duration(name, begun.elapsed());
        let outcome = match verdict {
            Ok(Verdict::Allow) => Outcome::Allow,
            Ok(Verdict::Mask(spans)) if spans.is_empty() => Outcome::Allow,
            Ok(Verdict::Mask(spans)) => {
                Outcome::Mask(spans.into_iter().map(|span| on_boundaries(span, &passage.text)).collect())
            }
            Ok(Verdict::Deny { rule, message }) => {
                let message = format!("{name}: {message}{}", place(passage));
                Outcome::Deny(Denial { kind: BLOCKED, rule, message })
            }
            Err(error) => {
                self.telemetry.count_failure(name);
                tracing::warn!(judge = name, %error, "judge failed");
                match self.on_failure.unwrap_or(member.policy.on_failure) {
                    OnFailure::Deny => {
                        let message = format!("{name}: the judge failed, so the text must not pass");
                        Outcome::Deny(Denial { kind: JUDGE_FAILED, rule: Cow::Borrowed("failure"), message })
                    }
                    OnFailure::Allow => Outcome::Allow,
                }
            }
        };
        if outcome != Outcome::Allow {
            span.record("action", outcome.action());
        }
        outcome
    }

    pub(crate) fn report(&self, member: &Member, passage: &Passage<'_>, outcome: &Outcome) {
        let (name, action, is_enforced) = (&member.name, outcome.action(), self.enforces(member));
        let count = |rule: &Cow<'static, str>| {
            self.telemetry.count_verdict(name, passage.direction, (action, rule), is_enforced);
        };
        let log =
            |rule: &str, text: &str| self.telemetry.log(name, passage, (action, rule), text, is_enforced);
        match outcome {
            Outcome::Allow => count(&Cow::Borrowed("")),
            Outcome::Deny(denial) => {
                count(&denial.rule);
                log(&denial.rule, &passage.text);
            }
            Outcome::Mask(spans) => {
                for span in spans {
                    count(&span.rule);
                    log(&span.rule, &passage.text[span.range.clone()]);
                }
            }
        }
    }
}

impl Outcome {
    fn join(outcomes: Vec<Self>) -> Self {
        let mut spans = Vec::new();
        for outcome in outcomes {
            match outcome {
                Self::Allow => {}
                Self::Deny(denial) => return Self::Deny(denial),
                Self::Mask(masked) => spans.extend(masked),
            }
        }
        if spans.is_empty() { Self::Allow } else { Self::Mask(spans) }
    }

    const fn action(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny(_) => "deny",
            Self::Mask(_) => "mask",
        }
    }
}

/// Returns the message or parameter of the caller that a text belongs to, such as ` (messages[3])`, and how to leave it out.
fn place(passage: &Passage<'_>) -> String {
    // Other names may be part of the text.
    let is_name = |step: &&str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (1..=MAX_STEP).contains(&step.len()) && step.bytes().all(is_part)
    };
    let mut steps = passage.location.split('/').skip(1);
    let name = steps.next().filter(is_name).filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()));
    let name = name.filter(|_| passage.direction != Direction::Completion);
    let index = steps.next().filter(is_name).filter(|step| step.bytes().all(|byte| byte.is_ascii_digit()));
    let mut parts = Vec::new();
    parts.extend(name.map(|name| index.map_or(name.to_owned(), |index| format!("{name}[{index}]"))));
    parts.extend(
        Role::of(passage)
            .filter(|role| *role != Role::User)
            .map(|role| format!("role {}; the judge's option roles can leave it out", role.as_str())),
    );
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

fn on_boundaries(mut span: Span, text: &str) -> Span {
    let (start, end) = (span.range.start.min(text.len()), span.range.end.min(text.len()));
    span.range = text.floor_char_boundary(start)..text.ceil_char_boundary(end.max(start));
    span
}
